"""Shows what a slow task waits for: redrawn lines in a terminal, otherwise a line at intervals."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import sys
from threading import RLock, Timer
from time import monotonic
from typing import TYPE_CHECKING, cast

from ansible import constants

from muster.road.waiting import waiting_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible.utils.display import Display

    from .way_out import PrintableDisplay

TITLE_AFTER = 0.7  # seconds until the title of a task with a condition is shown
AFTER = 15.0  # seconds until the first line
REDRAWN, EVERY = 1.0, 60.0  # seconds between two lines in a terminal, and otherwise


class Waiting:
    """The current task and its nodes. A timer's thread shows them; other methods are called in the main thread."""

    def __init__(self, display: Display) -> None:
        self.display = cast("PrintableDisplay", display)
        self.names = False
        self.nodes: dict[str, None] = {}
        self.timer: Timer | None = None
        self.turn = 0
        # A line must not be shown after the end of its task.
        self.lock = RLock()
        atexit.register(self.end)  # after Ctrl-C, the task has no other end

    def begin(self, title: Callable[[], None], *, shown: bool, names: bool) -> None:
        """Begin with a task. title: shows the title of the task. shown: whether to show lines. names: whether the task
        runs for each node, and not once for all nodes."""
        self.end()
        self.title, self.shown, self.names = title, shown, names
        self.began = monotonic()
        self._after(TITLE_AFTER)

    def add(self, node: str) -> None:
        if self.names and node != "localhost":
            self.nodes[node] = None

    def remove(self, node: str) -> None:
        self.nodes.pop(node, None)
        self.display.note_activity(node, None)

    def end(self) -> None:
        with self.lock:
            self.turn += 1
            if self.timer is not None:
                self.timer.cancel()
            self.nodes.clear()
            self.display.activities.clear()
            self.display.draw([])

    def _after(self, seconds: float) -> None:
        self.timer = Timer(seconds, self._tick, [self.turn])
        self.timer.daemon = True
        self.timer.start()

    def _tick(self, turn: int) -> None:
        with self.lock:
            if turn != self.turn:
                return
            self.title()
            seconds, width = monotonic() - self.began, terminal_width()
            if not self.shown:
                return
            if seconds < AFTER:
                self._after(AFTER - seconds)
                return
            self._after(REDRAWN if width else EVERY)
            lines = waiting_lines(seconds, list(self.nodes), self.display.activities.copy(), width)
            if not accepts_output():
                return
            if width:
                self.display.draw(lines)
            else:
                self.display.display(lines[0], color=constants.COLOR_VERBOSE)


def terminal_width() -> int:
    """Return the columns of this process's terminal; 0 if lines cannot be redrawn."""
    redraws = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return shutil.get_terminal_size().columns if redraws else 0


def accepts_output() -> bool:
    """Return whether some lines can be written without waiting, unlike to a stopped terminal or a full pipe."""
    return bool(select.select([], [1], [], 0)[1])
