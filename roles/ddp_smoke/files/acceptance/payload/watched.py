"""A process that is watched by another one: it ends with it, and can be looked at from there."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the one that watches it ends, however that ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        raise SystemExit(0)


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does: T is stopped, D waits for a device; nothing where it is not seen."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
