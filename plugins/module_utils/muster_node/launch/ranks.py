"""The ranks of a launch: those of its control group that say which rank they are, and are not a rank's own children.

Whatever began them: torchrun has them as its children, and so has accelerate; behind a shell script they are further
down, and a launcher that goes into the background has left them to somebody else.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from ..tools import files, process
from .foreign import number

Json = dict[str, Any]

CGROUPS = "/sys/fs/cgroup"
MOST_PROCESSES = 1 << 20  # bytes of a list of processes
MOST_DEPTH = 100  # parents of a process that are followed
YOUNG = 3.0  # seconds since a process was first seen in which it is looked at each time: it may still become a rank
PAUSE = 2.0  # seconds between two looks at an older one


class OtherProcess(NamedTuple):
    """A process that is no rank. first, again: when it was first seen, and when it is to be looked at again. below:
    whether it is a rank's own, and so never becomes one."""

    started: int
    first: float
    again: float
    below: bool


class Ranks:
    """table: {pid: {rank, local_rank, pid, started, gone_at}}, in the order of being seen."""

    def __init__(self, agent: int) -> None:
        """agent: what the launch runs; everything that it begins is in the control group of this process."""
        self.agent = agent
        self.table: dict[int, Json] = {}
        self.others: dict[int, OtherProcess] = {}
        self.group = control_group()

    def look(self) -> bool:
        """Bring the table up to date; return whether it changed."""
        changed = False
        members = self.members()
        now = time.monotonic()
        for pid in members:
            if pid not in self.table and self.is_new_rank(pid, members, now):
                changed = True
        for pid, rank in self.table.items():
            if rank["gone_at"] is None and not process.runs(pid, rank["started"]):
                rank["gone_at"] = time.time()
                changed = True
        self.others = {pid: other for pid, other in self.others.items() if pid in members}
        return changed

    def members(self) -> set[int]:
        """The processes of the control group; where its list cannot be read, all that the agent has begun and has still
        below it, as far as the ranks."""
        text = files.text(f"{self.group}/cgroup.procs", most=MOST_PROCESSES) if self.group else None
        found = {int(line) for line in text.split() if line.isdecimal()} if text else set()
        return found - {os.getpid()} if self.agent in found else self.descendants()

    def descendants(self) -> set[int]:
        found: set[int] = set()
        new = [self.agent]
        while new:
            pid = new.pop()
            if pid not in found:
                found.add(pid)
                new += process.children(pid) if pid not in self.table else []
        return found

    def is_new_rank(self, pid: int, members: set[int], now: float) -> bool:
        known = self.others.get(pid)
        if known and now < known.again:
            return False
        seen = process.status(pid)
        if seen is None:
            return False
        if known is None or known.started != seen.started:
            known = OtherProcess(seen.started, now, now, below=False)
        rank = None if known.below else rank_facts(pid)
        below = known.below or (rank is not None and self.is_below(pid, members, rank["local_rank"]))
        if rank is not None and not below:
            self.table[pid] = rank
            return True
        young = now - known.first < YOUNG and not below
        self.others[pid] = OtherProcess(known.started, known.first, now if young else now + PAUSE, below=below)
        return False

    def is_below(self, pid: int, members: set[int], local_rank: int) -> bool:
        """Whether it is a rank's own: one that is above it says that it is a rank, too. Whose parents are gone says
        nothing of that any more: of this launch, the first one of a local rank is the rank."""
        parent = pid
        for _ in range(MOST_DEPTH):
            seen = process.status(parent)
            parent = seen.parent if seen else 0
            if parent == self.agent:
                return False
            if parent not in members:
                break
            if parent in self.table or rank_facts(parent) is not None:
                return True
        if any(rank["local_rank"] == local_rank for rank in self.table.values()):
            return True
        # Where this process sees no control group of its own, but a wider one, others' ranks are in it as well.
        return process.environment(pid).get(process.LAUNCH_MARK) != os.environ.get(process.LAUNCH_MARK)


def control_group() -> str:
    """The folder of this process's control group, as this process sees it; "" where it does not."""
    text = files.text("/proc/self/cgroup") or ""
    for line in text.splitlines():
        number_, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number_ == "0" and not controllers:
            folder = CGROUPS + path
        elif controllers == "name=systemd":
            folder = f"{CGROUPS}/systemd{path}"
        else:
            continue
        if os.path.exists(f"{folder}/cgroup.procs"):
            return folder
    return ""


def rank_facts(pid: int) -> Json | None:
    """{rank, local_rank, pid, started, gone_at} when this process says that it is a rank, else None."""
    environ = process.environment(pid)
    rank, local_rank = (number(environ.get(name, "")) for name in ("RANK", "LOCAL_RANK"))
    facts = process_facts(pid)
    if rank is None or local_rank is None or facts is None:
        return None  # not yet exec'ed, or a helper process of the launcher
    return {"rank": rank, "local_rank": local_rank, **facts, "gone_at": None}


def process_facts(pid: int) -> Json | None:
    """What names one process, and no later one of the same number."""
    seen = process.status(pid)
    return {"pid": pid, "started": seen.started} if seen else None
