"""Measures and removes folders with contents from another user, with bounded cost.

Links are not followed. A removal enters no other file system and no mount. Deep trees cost no more than flat trees,
because every step works in an open folder.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from . import files

HERE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | files.SAFE
DEPTH = 64  # levels of folders that are measured


def size(within: int, name: str, deadline: float) -> int:
    """Return the disk usage of a folder in bytes, as far as it can be counted before the deadline (monotonic clock)."""
    found = 0
    todo = [name]
    while todo and time.monotonic() < deadline:
        path = todo.pop()
        with suppress(OSError), files.folder(path, within=within) as handle, os.scandir(handle) as entries:
            for entry in entries:
                seen = entry.stat(follow_symlinks=False)
                found += seen.st_blocks * 512
                if stat.S_ISDIR(seen.st_mode) and path.count("/") < DEPTH:
                    todo.append(f"{path}/{entry.name}")
                if time.monotonic() > deadline:
                    break
    return found


def remove(within: int, name: str, deadline: float) -> bool:
    """Remove a folder in `within`, to which only this user has write access. Return whether the folder was removed
    before the deadline.

    After a timeout, the folder stays partly removed.
    """
    try:
        top = os.open(name, HERE, dir_fd=within)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if _mount(top) != _mount(within):
            return False
        tried: set[str] = set()
        # Folders below a folder are moved up to the top one, so no folder is nested deeper.
        while new := _emptied(top, top, deadline) - tried:
            tried |= new
            for each in new:
                with suppress(OSError):
                    _remove_folder(top, each, deadline)
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(name, dir_fd=within)
        return True
    return False


def _remove_folder(top: int, name: str, deadline: float) -> None:
    handle = os.open(name, HERE, dir_fd=top)
    try:
        _emptied(handle, top, deadline)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=top)


def _emptied(handle: int, top: int, deadline: float) -> set[str]:
    """Remove the files of a folder, and move its subfolders to the top folder. If the folder is the top folder, return
    the names of its subfolders instead."""
    there: set[str] = set()
    if _mount(handle) != _mount(top):
        return there
    with suppress(OSError):
        os.fchmod(handle, 0o700)  # the owner may have made it read-only
    with os.scandir(handle) as entries:
        for entry in entries:
            if time.monotonic() > deadline:
                break
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=handle)
                elif handle == top:
                    there.add(entry.name)
                else:
                    _move_up(entry.name, handle, top)
    return there


def _mount(handle: int) -> tuple[int, str]:
    """Return the device and the mount of an open folder. A bind mount has the device of its source."""
    seen = files.text(f"/proc/self/fdinfo/{handle}") or ""
    return os.fstat(handle).st_dev, seen.partition("mnt_id:")[2].partition("\n")[0]


def _move_up(name: str, handle: int, top: int) -> None:
    new = f".{os.urandom(8).hex()}"
    try:
        os.rename(name, new, src_dir_fd=handle, dst_dir_fd=top)
    except PermissionError:
        # Only root may move a read-only folder, because its ".." is rewritten.
        _let_write(name, handle)
        os.rename(name, new, src_dir_fd=handle, dst_dir_fd=top)


def _let_write(name: str, within: int) -> None:
    handle = os.open(name, HERE, dir_fd=within)
    try:
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
