"""Turns between the ranks of a node without a process group: a name that the kernel takes back from who ends."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAUSE_SECONDS = 0.005


def name_of(what: str) -> str:
    """Of this run alone: an abstract address leaves no file, and is seen in this node's network namespace only."""
    run = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    return f"\0acceptance/{os.getuid()}/{run}/{what}"


@contextmanager
def turn(what: str, seconds: float) -> Iterator[bool]:
    """Whether it is this rank's turn; False where none came within so many seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        until = time.monotonic() + seconds
        mine = taken(held, what)
        while not mine and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
            mine = taken(held, what)
        yield mine


def taken(held: socket.socket, what: str) -> bool:
    try:
        held.bind(name_of(what))
    except OSError:
        return False
    return True


def free(what: str) -> bool:
    """Whether nobody has this turn now."""
    with turn(what, 0.0) as mine:
        return mine
