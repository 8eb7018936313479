"""Limit the size of each log of a launch: when a log reaches the limit, the blocks in the middle of the file are freed.

torchrun opens the logs, and its ranks write to them at their own offsets, so a log can be neither truncated nor
replaced. A hole in the middle needs no disk space and preserves all offsets, the beginning and the end.
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

PAUSE = 0.1  # seconds between two checks of the sizes
SHORTEST_PAUSE = 0.002  # if a log grows fast
KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h
BLOCK = 512  # the unit of st_blocks on all file systems


class Cap:
    """Limits the logs of a launch. most: maximum bytes on disk for each log; 0 for no limit. notes: errors, each listed
    once."""

    def __init__(self, run_dir: str, most: int) -> None:
        self.folder = f"{run_dir}/logs"
        self.most = most
        self.notes: list[str] = []
        self.before: dict[str, int] = {}
        self.looked = time.monotonic()

    def keep(self, seconds: float) -> None:
        """Keep the logs within the limit for this number of seconds. Check the sizes more often while a log grows
        fast."""
        end = time.monotonic() + seconds
        while True:
            pause = self.look() if self.most else PAUSE
            left = end - time.monotonic()
            time.sleep(max(0.0, min(pause, left)))
            if left <= pause:
                return

    def look(self) -> float:
        """Shorten logs above the limit. Return the seconds after which a log could exceed the limit again."""
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
        """Free the middle of a log, and return the bytes on disk that remain."""
        with files.opened(path, within=logs, owner=os.geteuid(), written=True) as handle:
            seen = os.fstat(handle)
            begin = _up(self.most // 4, seen.st_blksize)
            end = (seen.st_size - self.most // 2) // seen.st_blksize * seen.st_blksize
            failure = punch_hole(handle, begin, end - begin) if end > begin else 0
            if failure:
                self.note(f"log limit not enforced (launch_log_max_mb): {os.strerror(failure)}")
            return os.fstat(handle).st_blocks * BLOCK

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def punch_hole(handle: int, begin: int, length: int) -> int:
    """Free a part of a file. Return 0 or the error number; some file systems do not support holes (EOPNOTSUPP)."""
    function = _fallocate()
    if function is None:
        return errno.ENOSYS
    ctypes = import_module("ctypes")
    done = function(handle, KEEP_SIZE | PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(length))
    return int(ctypes.get_errno()) if done else 0


@cache
def _fallocate() -> Any:
    # Imported here, because the program on the node is started for every request, and imports take time.
    return getattr(import_module("ctypes").CDLL(None, use_errno=True), "fallocate64", None)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
