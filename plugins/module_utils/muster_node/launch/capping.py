"""A limit for each log of a launch: when it is reached, the middle of the file is given back to the disk.

torchrun opens the logs, and its ranks write into them with offsets of their own, so a log can neither be cut short nor
replaced. A hole in its middle costs nothing, keeps every offset, and leaves the head and the tail, which matter.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from ..tools import files
from .logs import log_files

PAUSE = 0.1  # seconds between two looks at the sizes
SHORTEST_PAUSE = 0.002  # where a log grows fast
KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h
BLOCK = 512  # the unit of st_blocks, whatever the file system


class Cap:
    """most: bytes on the disk of each log; 0 for no limit. notes: what could not be done, once each."""

    def __init__(self, run_dir: str, most: int) -> None:
        self.folder = f"{run_dir}/logs"
        self.most = most
        self.notes: list[str] = []
        self.before: dict[str, int] = {}
        self.looked = time.monotonic()

    def keep(self, seconds: float) -> None:
        """Look at the logs for so long: the faster one grows, the more often."""
        end = time.monotonic() + seconds
        while True:
            pause = self.look() if self.most else PAUSE
            left = end - time.monotonic()
            time.sleep(max(0.0, min(pause, left)))
            if left <= pause:
                return

    def look(self) -> float:
        """Cut what is too large; return the seconds until one may be so again."""
        pause = PAUSE
        now = time.monotonic()
        passed, self.looked = max(now - self.looked, 0.001), now
        with suppress(OSError), files.folder(self.folder) as logs:
            for _, path in log_files(logs):
                with suppress(OSError):
                    held = os.stat(path, dir_fd=logs, follow_symlinks=False).st_blocks * BLOCK
                    if held > self.most:
                        held = self.cut(logs, path)
                    grown = held - self.before.get(path, held)
                    self.before[path] = held
                    if grown > 0:
                        pause = min(pause, (self.most - held) * passed / grown / 2)
        return max(pause, SHORTEST_PAUSE)

    def cut(self, logs: int, path: str) -> int:
        """Give the middle back, and return the bytes that are held still."""
        with files.opened(path, within=logs, owner=os.geteuid(), written=True) as handle:
            seen = os.fstat(handle)
            begin = _up(self.most // 4, seen.st_blksize)
            end = (seen.st_size - self.most // 2) // seen.st_blksize * seen.st_blksize
            failure = punch_hole(handle, begin, end - begin) if end > begin else 0
            if failure:
                self.note(f"logs are not held at their limit (launch_log_max_mb): {os.strerror(failure)}")
            return os.fstat(handle).st_blocks * BLOCK

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def punch_hole(handle: int, begin: int, length: int) -> int:
    """Return 0, or why not: a file system may not be able to (EOPNOTSUPP)."""
    function = _fallocate()
    if function is None:
        return errno.ENOSYS
    ctypes = import_module("ctypes")
    done = function(handle, KEEP_SIZE | PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(length))
    return int(ctypes.get_errno()) if done else 0


@cache
def _fallocate() -> Any:
    # Imported where it is needed: a program on a node is started for every look, and pays for each import.
    return getattr(import_module("ctypes").CDLL(None, use_errno=True), "fallocate64", None)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
