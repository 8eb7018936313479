"""Keep apt busy until another process opens apt's lock: busy_apt.py MARKER, run by apt before dpkg.

MARKER is created once this script watches the lock. Runs on sandbox machines.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path

LOCK = b"/var/lib/dpkg/lock-frontend"
# From linux/fanotify.h and fcntl.h. Not inotify, because sandbox machines share the few instances of the host.
FAN_MARK_ADD, FAN_OPEN, AT_FDCWD = 1, 0x20, -100
PATIENCE = 300


def main(marker: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.fanotify_init(0, os.O_RDONLY)
    if watch < 0 or libc.fanotify_mark(watch, FAN_MARK_ADD, ctypes.c_uint64(FAN_OPEN), AT_FDCWD, LOCK) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    Path(marker).touch()
    # The process that opens the lock now finds it held, because apt continues only afterwards.
    return 0 if select.select([watch], [], [], PATIENCE)[0] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
