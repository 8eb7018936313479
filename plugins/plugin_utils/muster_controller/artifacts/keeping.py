"""What the controller keeps of a launch. Losing it is a warning, said once for each reason, and ends nothing."""

from __future__ import annotations

import queue
from functools import partial
from typing import TYPE_CHECKING

from muster_controller.playbook.aside import Aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOM = 64 * 1024 * 1024  # bytes that wait to be written
END = 10.0  # seconds that the end of a launch waits for its files


class Keeping:
    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.said: set[str] = set()
        self.aside = Aside("files", ROOM, lambda _exc: None)

    def keep(self, path: Path, write: Callable[[], object], size: int = 1) -> bool:
        """Write aside, in the order of asking; False where too much waits already, and nothing is written."""
        if self.aside.do(partial(self.attempt, path, write), size):
            return True
        self.warn(f"{path.parent} takes no more for now: the file system there is slow, or hangs", "slow")
        return False

    def attempt(self, path: Path, write: Callable[[], object]) -> str:
        """Write, and return why it failed; "" where it did not."""
        try:
            write()
        except Exception as exc:  # a full disk, short memory, a text that cannot be encoded: the launch goes on
            why = (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__} {exc}".strip()
            self.warn(f"{path} could not be kept: {why}", why)
            return why
        return ""

    def warn(self, sentence: str, kind: str) -> None:
        if kind not in self.said:
            self.said.add(kind)
            self.say(f"{sentence}; the launch goes on, and the same is not said again")

    def surely(self, path: Path, write: Callable[[], object], seconds: float = END) -> str:
        """Write now, and return why it is lost; "" where it is kept."""
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.aside.do(lambda: said.put(self.attempt(path, write)), 0)
        try:
            return said.get(timeout=seconds)
        except queue.Empty:
            return f"the file system did not take it within {seconds:.0f} s"

    def finish(self, seconds: float = END) -> None:
        """Wait until all is written."""
        if not self.aside.wait(seconds):
            self.say("the controller's copy of the logs is incomplete: the file system there takes nothing more")
