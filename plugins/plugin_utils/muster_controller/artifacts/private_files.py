"""Private files of a run on the controller, artifacts/<cluster>/<run>/, readable only by the user who ran it.

They contain output of nodes and training scripts. Folders have mode 0700 and files 0600 regardless of the umask, also
missing parent folders.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from muster_node.tools import files

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = 0o700
FILE = 0o600


def write_text(path: Path, text: str) -> None:
    """Write atomically, so that a reader never sees a partial file."""
    make_folder(path.parent)
    files.replace(str(path), text.encode("utf-8", "replace"), mode=FILE)


def append(path: Path, data: bytes) -> int:
    """Append as many bytes as the file system accepts in one write, and return their number."""
    make_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)
    try:
        os.fchmod(handle, FILE)
        return os.write(handle, data)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        make_folder(folder.parent)
        with suppress(FileExistsError):  # another process of this run was first
            files.make_folder(str(folder), mode=FOLDER)


def point_latest(folder: Path) -> None:
    """Let `latest` next to the run's folder point to the folder."""
    files.link(str(folder.parent / "latest"), folder.name)
