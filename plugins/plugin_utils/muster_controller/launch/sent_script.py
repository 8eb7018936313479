"""A script on the controller, in the form sent to the nodes: a file is unchanged, a folder becomes a zipapp."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from muster.verdict.words import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed time stamps, so that the same folder gives the same file
# The script is sent to every node during the start. Training code is far smaller than this limit.
MOST = 8_000_000


def sent_name(source: Path) -> str:
    return f"{source.name}.pyz" if source.is_dir() else source.name


def unsendable(source: Path) -> str:
    """Return why a script cannot be sent, as a sentence, or an empty string. Raises OSError."""
    if not source.is_file() and not (source / "__main__.py").is_file():
        return f"{source} is neither a file nor a folder with a __main__.py on the controller (script_src)."
    size = sum(path.stat().st_size for path in parts(source))
    if size <= MOST:
        return ""
    what = "The Python files in" if source.is_dir() else "The script"
    has = "have" if source.is_dir() else "has"
    return (
        f"{what} {source} {has} {gigabytes(size)}; the limit is {gigabytes(MOST)} (script_src). "
        "Copy larger files to every node, and set their path there (script)."
    )


def sent_body(source: Path) -> bytes:
    """Return the content of the file, or a folder's Python files as a zipapp. Raises OSError."""
    if not source.is_dir():
        return source.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in parts(source):
            entry = zipfile.ZipInfo(path.relative_to(source).as_posix(), EPOCH)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def parts(source: Path) -> Iterator[Path]:
    """Yield the file, or a folder's Python files without hidden ones such as .venv."""
    if not source.is_dir():
        yield source
        return
    for path in sorted(source.rglob("*.py")):
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
        if path.is_file() and not hidden:
            yield path
