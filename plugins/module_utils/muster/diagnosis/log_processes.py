"""Assigns log lines without a rank to the processes that wrote them.

Several processes write to the log of a node: the launcher, and ranks whose lines have no prefix, because they failed
before init_process_group or in native code. The frames of a traceback show whether the launcher or a rank wrote it.
Process ids are known from NCCL, journald, Ray and torchrun.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from ..launch.agent_log import AGENT_FAILED
from ..launch.tracebacks import TRACEBACK_START, end_of_traceback, fatal_error, is_cascade
from .arguments import is_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SUMMARY = re.compile(
    r"time\s*: (?P<time>[\d_:-]{19})\s+host\s*: (?P<host>\S+)\s+rank\s*: (?P<rank>\d{1,6})"
    r" \(local_rank: (?P<local>\d{1,4})\)\s+exitcode\s*: (?P<code>-?\d{1,4}) \(pid: (?P<pid>\d{1,10})\)"
)
ELASTIC = r"torch[./]distributed[./](?:run|launch|elastic|launcher)\b"
SPOKEN = re.compile(rf"{ELASTIC}|^\S*(?:torchrun|accelerate|deepspeed): |ChildFailedError", re.MULTILINE)
LAUNCHER_FRAME = re.compile(
    rf"{ELASTIC}|accelerate[./]commands[./]|deepspeed[./]launcher[./]|/bin/(?:torchrun|accelerate|deepspeed)\b"
    r"|/site-packages/ray/|Rendezvous\w+Error"
)
LAUNCHER_LINE = re.compile(
    rf"{ELASTIC}|ChildFailedError|^[=*-]{{10,}}|^\s*(?:time|host|rank|exitcode|error_file|traceback)\s*: |FAILED$"
    r"|Root Cause|^(?:Other )?Failures:|NO_OTHER_FAILURES|^\[\d+\]:$|death signal|closing signal|^\+ |^\$ "
    r"|Setting OMP_NUM_THREADS"
)
INIT = re.compile(r"NCCL INFO .{0,400}?\brank (?P<rank>\d{1,6}) nranks (?P<world>\d{1,6})\b")


class ProcessEnd(NamedTuple):
    """How a process ended according to torchrun. host: "" if unknown. rank: None if only the local rank is known."""

    host: str
    rank: int | None
    local: int
    code: int
    pid: int
    at: float = 0.0


def process_ends(text: str) -> list[ProcessEnd]:
    """Return the ends of processes in torchrun's output. The summary is more complete than the line before it."""
    found = [
        ProcessEnd("", None, int(one["local"]), int(one["code"]), int(one["pid"]))
        for one in AGENT_FAILED.finditer(text)
    ]
    for one in SUMMARY.finditer(text):
        host = one["host"] if is_host(one["host"]) else ""
        rank, local, code, pid = (int(one[name]) for name in ("rank", "local", "code", "pid"))
        found.append(ProcessEnd(host, rank, local, code, pid, seconds(one["time"])))
    return list({(one.local, one.pid): one for one in found}.values())


def seconds(text: str) -> float:
    """Parse an exit time printed by torchrun. Its time zone is unknown, but only exits of the same launch are compared
    with each other."""
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return 0.0


def rank_of_process(lines: Iterable[str]) -> int | None:
    """Return the rank of a process by the largest communicator that it joined, according to NCCL."""
    known = [(int(one["world"]), int(one["rank"])) for line in lines if (one := INIT.search(line))]
    return max(known)[1] if known else None


def blocks_of(lines: Sequence[str]) -> Iterator[tuple[bool, bool, list[str]]]:
    """Yield (by the launcher, is a traceback, lines) for each part of a node's log."""
    at = 0
    while at < len(lines):
        is_traceback = TRACEBACK_START.match(lines[at]) is not None
        end = end_of_traceback(list(lines), at) if is_traceback else at + 1
        block = list(lines[at:end])
        of_launcher = LAUNCHER_FRAME if is_traceback else LAUNCHER_LINE
        yield of_launcher.search("\n".join(block)) is not None, is_traceback, block
        at = end


class NodeOutput(NamedTuple):
    """The output on a node. launcher: lines of the launcher. own: all lines of its ranks. other: these without
    tracebacks. tracebacks: exceptions of its ranks, with a rank's own failures before consequences of others."""

    launcher: list[str]
    own: list[str]
    other: list[str]
    tracebacks: list[list[str]]

    @property
    def has_failed(self) -> bool:
        """Return whether a process other than the launcher printed an exception or a fatal error."""
        return bool(self.tracebacks) or bool(fatal_error("\n".join(self.other)))


def output_of(lines: Sequence[str]) -> NodeOutput:
    found = NodeOutput([], [], [], [])
    for by_launcher, is_traceback, block in blocks_of(lines):
        (found.launcher if by_launcher else found.own).extend(block)
        if not by_launcher and is_traceback:
            found.tracebacks.append(block)
        elif not by_launcher:
            found.other.extend(block)
    found.tracebacks.sort(key=lambda block: is_cascade("\n".join(block)))
    return found


def shared_out(lines: Sequence[str], owners: Sequence[int]) -> tuple[list[str], dict[int, list[str]]]:
    """Divide the lines of a node's log between its launcher and the ranks that may have written them.

    owners: the ranks that failed, by time, or the only rank of the node. The first one gets the first exception that is
    no consequence of another failure. Without owners, all lines stay with the launcher.
    """
    found = output_of(lines)
    if len(owners) == 1:
        return found.launcher, {owners[0]: found.own}
    if not owners or not found.tracebacks:
        return list(lines), {}
    last = len(found.tracebacks) - 1
    given = {rank: found.tracebacks[min(at, last)] for at, rank in enumerate(owners)}
    return [*found.other, *found.launcher], given
