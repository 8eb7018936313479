"""Writes files about a launch on the controller. Errors only cause a warning, once per reason, and never stop the
launch."""

from __future__ import annotations

import queue
from functools import partial
from typing import TYPE_CHECKING

from muster_controller.playbook.aside import Aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOM = 64 * 1024 * 1024  # bytes in the write queue
END = 10.0  # seconds to wait for files at the end of a launch


class Keeping:
    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.said: set[str] = set()
        self.aside = Aside("files", ROOM, lambda _exc: None)

    def keep(self, path: Path, write: Callable[[], object], size: int = 1) -> bool:
        """Queue a write for the writer thread, which keeps the order of the calls. Return False if the queue is
        full."""
        if self.aside.do(partial(self.attempt, path, write), size):
            return True
        self.warn(f"files for {path.parent} are not written: the file system is slow or hangs", "slow")
        return False

    def attempt(self, path: Path, write: Callable[[], object]) -> str:
        """Write the file. Return the error, or an empty string."""
        try:
            write()
        except Exception as exc:  # full disk, low memory, text that cannot be encoded: the launch continues
            why = (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__} {exc}".strip()
            self.warn(f"{path} could not be written: {why}", why)
            return why
        return ""

    def warn(self, sentence: str, kind: str) -> None:
        if kind not in self.said:
            self.said.add(kind)
            self.say(f"{sentence}; the launch continues (shown once)")

    def surely(self, path: Path, write: Callable[[], object], seconds: float = END) -> str:
        """Write the file and wait until it is written. Return the error, or an empty string."""
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.aside.do(lambda: said.put(self.attempt(path, write)), 0)
        try:
            return said.get(timeout=seconds)
        except queue.Empty:
            return f"the file system did not respond within {seconds:.0f} s"

    def finish(self, seconds: float = END) -> None:
        """Wait until all files are written."""
        if not self.aside.wait(seconds):
            self.say("the controller's copy of the logs is incomplete: its file system does not respond")
