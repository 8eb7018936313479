"""Work that a supervisor must not wait for: a terminal that takes no more lines, a file system that hangs."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside:
    """A thread that does one job after the other. A daemon: one that hangs must not hold up the end."""

    def __init__(self, name: str, room: int, on_error: Callable[[Exception], None]) -> None:
        """room: of what may wait to be done, in the units of `do`. on_error: called in that thread."""
        self.room = room
        self.on_error = on_error
        self.waiting = 0
        self.changed = threading.Condition()
        self.jobs: queue.SimpleQueue[tuple[Callable[[], object], int]] = queue.SimpleQueue()
        # Ansible keeps the current task in a context variable, which new threads do not inherit.
        self.context = contextvars.copy_context()
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)

    def do(self, job: Callable[[], object], size: int = 1) -> bool:
        """Have it done behind all others; False where there is no room, and it is left out (a size of 0 has)."""
        with self.changed:
            if self.waiting and self.waiting + size > self.room:
                return False
            self.waiting += size
        if self.thread.ident is None:
            self.thread.start()
        self.jobs.put((job, size))
        return True

    def work(self) -> None:
        while True:
            job, size = self.jobs.get()
            try:
                self.context.run(job)
            except Exception as exc:  # whatever it is, the next job may succeed
                self.on_error(exc)
            del job  # what it holds may be large
            with self.changed:
                self.waiting -= size
                self.changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether all is done, within this time."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.waiting, seconds)
