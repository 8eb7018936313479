"""A script of the controller as it is sent to the nodes: a file as it is, a folder as one file that Python runs."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from muster.verdict.words import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)  # the same folder is the same file, whenever it is packed
# It goes to every node within the start. Training code is far below that; a data set or an environment is not.
MOST = 8_000_000


def sent_name(source: Path) -> str:
    return f"{source.name}.pyz" if source.is_dir() else source.name


def unsendable(source: Path) -> str:
    """Why this cannot be sent, as a sentence; nothing where it can. Raises OSError."""
    if not source.is_file() and not (source / "__main__.py").is_file():
        return f"{source} is neither a file nor a folder with a __main__.py on the controller (script_src)."
    size = sum(path.stat().st_size for path in parts(source))
    if size <= MOST:
        return ""
    what = "The Python files in" if source.is_dir() else "The script"
    has = "have" if source.is_dir() else "has"
    return (
        f"{what} {source} {has} {gigabytes(size)}, and at most {gigabytes(MOST)} are sent (script_src): "
        "put what is larger on every node, and name the script there (script)."
    )


def sent_body(source: Path) -> bytes:
    """The file; of a folder, its Python files as an application of zipapp's kind. Raises OSError."""
    if not source.is_dir():
        return source.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in parts(source):
            entry = zipfile.ZipInfo(path.relative_to(source).as_posix(), EPOCH)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def parts(source: Path) -> Iterator[Path]:
    """The files that are sent: of a folder its Python files, but for those that are hidden, as .venv is."""
    if not source.is_dir():
        yield source
        return
    for path in sorted(source.rglob("*.py")):
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
        if path.is_file() and not hidden:
            yield path
