"""Files that the controller keeps of a run, artifacts/<cluster>/<run>/: for the eyes of the one who ran it alone.

They hold what nodes and training scripts printed. So whatever the umask, folders are 0700 and files 0600, also the
missing folders above them.
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
    """Write atomically: a reader never meets half a file."""
    make_folder(path.parent)
    files.replace(str(path), text.encode("utf-8", "replace"), mode=FILE)


def append(path: Path, data: bytes) -> int:
    """Append what the file system takes at once, and return how many bytes those are."""
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
    """Let `latest` beside this run's folder point to it."""
    files.link(str(folder.parent / "latest"), folder.name)
