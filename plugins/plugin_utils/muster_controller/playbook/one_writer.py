"""Lets only one run at a time write in a folder of the controller."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60.0
PAUSE = 0.05


@contextlib.contextmanager
def one_writer(folder: Path, seconds: float = SECONDS) -> Iterator[None]:
    """Lock the folder against other processes of this run and other runs. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + seconds
        while not _taken(handle):
            if time.monotonic() > until:
                raise TimeoutError(0, f"another run has locked the folder for {seconds:.0f} s", str(folder))
            time.sleep(PAUSE)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
