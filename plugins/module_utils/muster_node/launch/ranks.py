"""Find the ranks of a launch: processes in its control group with RANK and LOCAL_RANK, except descendants of a rank.

This works with any launcher. Ranks are children of torchrun or accelerate, deeper descendants of a shell script, or
children of another process if the launcher runs in the background.
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
MOST_DEPTH = 100  # parents of a process to follow
YOUNG = 3.0  # seconds in which a new process is checked every time, because it may still become a rank
PAUSE = 2.0  # seconds between two checks of an older process


class OtherProcess(NamedTuple):
    """A process that is not a rank. first: time of the first check. again: time of the next check. below: whether the
    process is a descendant of a rank and can never become a rank."""

    started: int
    first: float
    again: float
    below: bool


class Ranks:
    """Ranks found so far. table: {pid: {rank, local_rank, pid, started, gone_at}} in order of detection."""

    def __init__(self, agent: int) -> None:
        """agent: PID of the launcher, whose descendants are in the control group of the current process."""
        self.agent = agent
        self.table: dict[int, Json] = {}
        self.others: dict[int, OtherProcess] = {}
        self.group = control_group()

    def look(self) -> bool:
        """Update the table. Return whether the table changed."""
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
        """Return the processes of the control group. If the kernel's list is not readable, return the agent's
        descendants down to the ranks."""
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
        """Return whether an ancestor of the process is a rank. If the parents are unknown, the first process with this
        local rank counts as the rank."""
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
        # If only a wider control group is visible, it also contains ranks of other launches.
        return process.environment(pid).get(process.LAUNCH_MARK) != os.environ.get(process.LAUNCH_MARK)


def control_group() -> str:
    """Return the folder of the current process's control group; "" if the folder is not visible."""
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
    """Return {rank, local_rank, pid, started, gone_at} of a process with RANK and LOCAL_RANK; None for other
    processes."""
    environ = process.environment(pid)
    rank, local_rank = (number(environ.get(name, "")) for name in ("RANK", "LOCAL_RANK"))
    facts = process_facts(pid)
    if rank is None or local_rank is None or facts is None:
        return None  # before exec, or a helper process of the launcher
    return {"rank": rank, "local_rank": local_rank, **facts, "gone_at": None}


def process_facts(pid: int) -> Json | None:
    """Return an identity of the process that differs from later processes with the same PID."""
    seen = process.status(pid)
    return {"pid": pid, "started": seen.started} if seen else None
