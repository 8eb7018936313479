"""A PEP 517 build backend. Its wheel records the build user, and its build tries to write outside of its folder."""

from __future__ import annotations

import contextlib
import os
import zipfile
from pathlib import Path

OWNED = Path("/opt/muster-test-owned")


def build_wheel(folder: str, config_settings: object = None, metadata_directory: object = None) -> str:
    with contextlib.suppress(OSError):
        OWNED.write_text(str(os.getuid()))
    name, info = "sourced-1.0-py3-none-any.whl", "sourced-1.0.dist-info"
    content = {
        "sourced.py": f"BUILT_BY = {os.getuid()}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(Path(folder, name), "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD")))
    return name
