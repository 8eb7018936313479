"""Private files of a run on the controller, artifacts/<cluster>/<run>/, readable only by the user who ran it.

The files contain output of nodes and training scripts. Regardless of the umask, files have mode 0600, and folders,
including created parent folders, have mode 0700.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from muster_node.tools import files

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = 0o700
FILE = 0o600


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, so that readers never see a partial file."""
    make_folder(path.parent)
    files.replace(str(path), text.encode("utf-8", "replace"), mode=FILE)


def append(path: Path, data: bytes) -> int:
    """Append data with a single write, and return the number of bytes that the file system accepted."""
    make_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | files.SAFE, FILE)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise files.UnsafePathError(errno.EINVAL, files.NOT_REGULAR, str(path))
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
    """Update the link `latest`, next to the run's folder, to point to this folder."""
    files.link(str(folder.parent / "latest"), folder.name)
