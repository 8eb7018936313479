"""An end that leaves the ranks time: SIGTERM to each of them, and SIGKILL when that time is over.

For stops that people ask for, and for time limits: a script may write a checkpoint then. torchrun itself is left alone
as long as a rank runs: told to end, it ends them by limits of its own. What is in the unit beside them ends with it.
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
ASKED, LIMIT = "asked", "limit"  # the reasons, as endings.NODE_WORDS has them
SECONDS = 30.0
AGENT_SECONDS = 1.0  # for torchrun to end by itself behind its ranks
PAUSE = 0.05
SLACK = 2.0  # seconds behind the deadline after which the unit is stopped as a whole


class RanksEnding:
    """In the unit's main process. reason: "" as long as nothing ends."""

    def __init__(self) -> None:
        self.reason = ""
        self.seconds = self.until = 0.0
        self.told: set[int] = set()
        self.idle_since = 0.0

    def begin(self, reason: str, until: float) -> None:
        """until: on the monotonic clock; what is asked for once is not taken back."""
        self.reason, self.until = reason, until
        self.seconds = max(0.0, until - time.monotonic())

    def facts(self) -> Json | None:
        """For whoever looks: see foreign.ending."""
        return {"reason": self.reason, "until": self.until, "seconds": self.seconds} if self.reason else None

    def go_on(self, agent: Mapping[str, Any] | None, ranks: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whoever runs, once; whether the time is up, and all of them were killed."""
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
    """Have the ranks end by themselves; return when the launch's main process has ended, or the time is up.

    The word is said again and again: whoever watches the launch meanwhile overwrites it.
    """
    folder = state.state_dir(launch_id)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline + SLACK and os.path.lexists(f"{folder}/lease"):
        if os.path.lexists(f"{folder}/unit/result.json"):
            return
        state.renew_lease(folder, deadline - time.monotonic(), END)
        time.sleep(PAUSE)


def tell(processes: Iterable[Mapping[str, Any]], number: signal.Signals) -> None:
    """Send a signal to processes that the unit's main process has seen itself; never to later ones of their PIDs."""
    for one in processes:
        with suppress(OSError), pinned(one["pid"]) as handle:
            if process.runs(one["pid"], one["started"]):
                signal.pidfd_send_signal(handle, number)


@contextmanager
def pinned(pid: int) -> Iterator[int]:
    """Yield a descriptor of whatever has this PID now: what is sent through it reaches no later one."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)
