"""Keeps apt busy until somebody else wants its lock: busy_apt.py MARKER, as what apt runs before dpkg.

MARKER is written when the kernel has been asked to tell of it. Runs on machines of the sandbox.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path

LOCK = b"/var/lib/dpkg/lock-frontend"
IN_OPEN = 0x20
PATIENCE = 300


def main(marker: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init()
    if watch < 0 or libc.inotify_add_watch(watch, LOCK, IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    Path(marker).touch()
    # Whoever opens it now finds it held: apt goes on only afterwards.
    return 0 if select.select([watch], [], [], PATIENCE)[0] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
