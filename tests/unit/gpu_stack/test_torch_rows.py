"""script/torch_rows.py reads only the required parts of wheels, from a local package index."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[3]
TABLE = "roles/gpu_stack/files/versions.yml"
DERIVED = "plugins/module_utils/muster/known/rows.py"
METADATA = """Metadata-Version: 2.1
Name: torch
Requires-Dist: nvidia-nccl-cu13==2.31.1; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu13==9.30.0.1; platform_system == "Linux"
Requires-Dist: cuda-toolkit[cublas,cudart]==13.4.1; platform_system == "Linux"
"""
BULK = 2_000_000
NEW = """\
  2.99.1:
    {default: cu134, python: ["3.12", "3.15"], patches: [2.99.0], source: [wheels, torch-release],
     variants: {cu134: ["2.31.1", "9.30.0.1"]}}
"""


class Index:
    """A package index with two patch releases of a release that is not in the table."""

    def __init__(self, folder: Path) -> None:
        self.sent = 0
        wheels = [(release, minor) for release in ("2.99.0", "2.99.1") for minor in (12, 15)]
        names = [f"torch-{release}-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl" for release, minor in wheels]
        for name in names:
            with zipfile.ZipFile(folder / name, "w") as wheel:
                wheel.writestr("torch/lib/libtorch.so", random.Random(1).randbytes(BULK))
                wheel.writestr("torch.dist-info/METADATA", METADATA)
        page = "".join(f'<a href="/files/{name}#sha256=0">{name}</a>' for name in names).encode()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(200, b"", (folder / Path(self.path).name).stat().st_size)

            def do_GET(self) -> None:
                if self.path == "/simple/torch/":
                    return self._answer(200, page, len(page))
                first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                body = (folder / Path(self.path).name).read_bytes()[int(first) : int(last) + 1]
                index.sent += len(body)
                return self._answer(206, body, len(body))

            def _answer(self, status: int, body: bytes, length: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Suppress the request log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    index = Index(tmp_path)
    threading.Thread(target=index.server.serve_forever, daemon=True).start()
    yield index
    index.server.shutdown()


def torch_rows(index: Index, project: Path, *options: str) -> str:
    """Return the output of the script."""
    argv = [sys.executable, str(project / "script/torch_rows.py"), *options]
    environment = {**os.environ, "PIP_INDEX_URL": index.url}
    done = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_new_release_is_printed(index: Index) -> None:
    assert torch_rows(index, PROJECT, "--show") == NEW
    assert 0 < index.sent < BULK / 10


def test_table_and_derived_file_are_written(index: Index, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("script/torch_rows.py", "script/known.py", TABLE, DERIVED):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, project / name)
    assert torch_rows(index, project) == NEW
    assert list(yaml.safe_load((project / TABLE).read_text())["torch"]) == ["2.99.1"]
    derived = (project / DERIVED).read_text()
    assert '"2.3.1",\n    "2.99.0",\n    "2.99.1",\n)' in derived
    assert torch_rows(index, project) == "Every row is up to date.\n"
    assert (project / DERIVED).read_text() == derived
