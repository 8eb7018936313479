"""End a launch gracefully: send SIGTERM to each rank, and SIGKILL after a grace period.

Used for requested stops and time limits, so that a script can write a checkpoint. torchrun receives no signal while a
rank is running, because it would end the ranks with its own timeouts. Other processes in the unit end with the unit.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..tools import process
from . import state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Json = dict[str, Any]

END = "end"  # the word in the lease; the ranks have time until the lease's deadline
ASKED, LIMIT = "asked", "limit"  # the reasons, as in endings.NODE_WORDS
SECONDS = 30.0
AGENT_SECONDS = 1.0  # for torchrun to exit after its ranks
PAUSE = 0.05
SLACK = 2.0  # seconds after the deadline until the whole unit is stopped


class RanksEnding:
    """Ends the ranks, in the unit's main process. reason: "" until the end begins."""

    def __init__(self) -> None:
        self.reason = ""
        self.seconds = self.until = 0.0
        self.told: set[int] = set()
        self.idle_since = 0.0

    def begin(self, reason: str, until: float) -> None:
        """Begin to end the ranks, which cannot be cancelled. until: deadline on the monotonic clock."""
        self.reason, self.until = reason, until
        self.seconds = max(0.0, until - time.monotonic())

    def facts(self) -> Json | None:
        """Return the state for other processes; see foreign.ending."""
        return {"reason": self.reason, "until": self.until, "seconds": self.seconds} if self.reason else None

    def go_on(self, agent: Mapping[str, Any] | None, ranks: Iterable[Mapping[str, Any]]) -> bool:
        """Send SIGTERM once to each running process. Return whether the grace period has expired and all processes were
        killed."""
        running = [rank for rank in ranks if rank["gone_at"] is None]
        alone = [agent] if agent else []
        if time.monotonic() > self.until:
            tell([*running, *alone], signal.SIGKILL)
            return True
        fresh = [rank for rank in running if rank["pid"] not in self.told]
        if running:
            self.idle_since = 0.0
        elif not self.idle_since:
            self.idle_since = time.monotonic()
        elif time.monotonic() > self.idle_since + AGENT_SECONDS:
            fresh = [one for one in alone if one["pid"] not in self.told]
        tell(fresh, signal.SIGTERM)
        self.told |= {one["pid"] for one in fresh}
        return False


def ask_to_end(launch_id: str, seconds: float) -> None:
    """Request the end of the ranks. Return when the launch's main process has ended or the time has expired.

    The request is repeated, because a supervisor that watches the launch overwrites it.
    """
    folder = state.state_dir(launch_id)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline + SLACK and os.path.lexists(f"{folder}/lease"):
        if os.path.lexists(f"{folder}/unit/result.json"):
            return
        state.renew_lease(folder, deadline - time.monotonic(), END)
        time.sleep(PAUSE)


def tell(processes: Iterable[Mapping[str, Any]], number: signal.Signals) -> None:
    """Send a signal to processes that the unit's main process has seen, never to later processes that reuse their
    PIDs."""
    for one in processes:
        with suppress(OSError), pinned(one["pid"]) as handle:
            if process.runs(one["pid"], one["started"]):
                signal.pidfd_send_signal(handle, number)


@contextmanager
def pinned(pid: int) -> Iterator[int]:
    """Yield a pidfd of the process. A signal sent through the pidfd cannot reach a later process with the same PID."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)
