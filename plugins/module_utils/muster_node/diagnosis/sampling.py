"""Periodically samples the CPU time, context switches, stack and number of started collectives of a launch's ranks, to
distinguish ranks that hang from ranks that compute.

Sampling runs in a thread, so that ranks that do not answer do not delay the launch.
"""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from . import hook, observed

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

MOST_RANKS = 64
MOST_BELOW = 256  # descendants of a rank whose CPU time is added
FRAMES = 10
SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\t(\d+)$", re.MULTILINE)


class Sampling:
    def __init__(self, state: str, seconds: float) -> None:
        """seconds: interval between samples; 0 disables sampling."""
        self.folder = f"{state}/{hook.SOCKETS}"
        self.path = f"{state}/unit/samples.json"
        self.seconds = seconds
        self.due = time.monotonic()
        self.number = 0
        self.thread: threading.Thread | None = None

    def keep(self, ranks: Iterable[Json]) -> None:
        """Take a sample of the ranks if one is due. The main process calls this repeatedly."""
        if not self.seconds or time.monotonic() < self.due or (self.thread and self.thread.is_alive()):
            return
        self.due = time.monotonic() + self.seconds
        there = [dict(rank) for rank in ranks if rank["gone_at"] is None][:MOST_RANKS]
        if there:
            self.number += 1
            self.thread = threading.Thread(target=self.take, args=(there, self.number), daemon=True)
            self.thread.start()

    def take(self, ranks: list[Json], number: int) -> None:
        within = observed.all_observed([rank["pid"] for rank in ranks], self.folder, finished=False, spy=False)
        found = [sample(rank, within[rank["pid"]]) for rank in ranks]
        text = json.dumps({"number": number, "at": time.monotonic(), "ranks": [each for each in found if each]})
        with suppress(OSError):
            files.replace(self.path, text.encode())


def sample(rank: Json, within: Json) -> Json:
    """Return a Sample (muster/launch/messages.py); {} if the rank has exited."""
    seen = process.status(rank["pid"])
    if seen is None or seen.started != rank["started"]:
        return {}
    flight = within["flight"]
    last = flight["last"][-1] if flight and flight["last"] else {"operation": "", "state": ""}
    return {
        "local_rank": rank["local_rank"],
        "state": seen.state,
        "cpu": round(seen.cpu + below(rank["pid"]), 2),
        "switches": sum(map(int, SWITCHES.findall(process.read(rank["pid"], "status")))),
        "stack": within["stack"][:FRAMES],
        "sequence": flight["enqueued"] if flight else None,
        "operation": last["operation"],
        "begun": last["state"] == "started",
    }


def below(pid: int) -> float:
    """Return the CPU seconds of a rank's descendants, such as data loader workers."""
    seconds, known, new = 0.0, 0, process.children(pid)
    while new and known < MOST_BELOW:
        one = new.pop()
        known += 1
        seen = process.status(one)
        if seen:
            seconds += seen.cpu
            new += process.children(one)
    return seconds
