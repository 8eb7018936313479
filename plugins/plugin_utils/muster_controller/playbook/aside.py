"""Runs work that might block in a thread: output to a hanging terminal, or writes to a hanging file system."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside:
    """A thread that runs one job after the other. It is a daemon thread, so that a hanging job does not delay the
    exit."""

    def __init__(self, name: str, room: int, on_error: Callable[[Exception], None]) -> None:
        """room: the limit of the queue, in the units of the size in `do`. on_error: called in the thread."""
        self.room = room
        self.on_error = on_error
        self.waiting = 0
        self.changed = threading.Condition()
        self.jobs: queue.SimpleQueue[tuple[Callable[[], object], int]] = queue.SimpleQueue()
        # Ansible keeps the current task in a context variable, which new threads do not inherit.
        self.context = contextvars.copy_context()
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)

    def do(self, job: Callable[[], object], size: int = 1) -> bool:
        """Queue a job. If the queue is full, drop the job and return False. Jobs of size 0 are always queued."""
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
            except Exception as exc:  # the next job may succeed
                self.on_error(exc)
            del job  # it may hold much memory
            with self.changed:
                self.waiting -= size
                self.changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until all jobs have finished. Return whether they finished in time."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.waiting, seconds)
