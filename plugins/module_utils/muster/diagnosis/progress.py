"""Progress of each rank in its collectives, from torch's flight recorders and NCCL's watchdogs.

In entries of Gloo, the number, operation and sizes are reliable, but not the completion. Therefore the stack of a rank
decides whether the rank waits in a collective.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..launch.tracebacks import FRAME
from .case import once
from .questions import BY_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .case import LaunchCase
    from .evidence import Collective, RankEnd, RankShot

WATCHDOG = re.compile(BY_ID["nccl.work"].pattern)
TIMED_OUT = re.compile(BY_ID["nccl.timeout"].pattern)
GROUP = re.compile(r"PG GUID (?P<group>[^\s(]+)")
DEFAULT_GROUPS = ("0", "")  # torch before 2.4 prints no group
BY_WATCHDOG = "NCCL's watchdog"
STARTED, COMPLETED = "started", "completed"
# Python frames in which a rank may wait for others: in a collective, or in backward, where DDP waits.
WITHIN = re.compile(r"torch/(?:distributed|autograd|nn/parallel)/")
INNERMOST = 3  # frames that are checked; further out, a whole step is within DDP's forward
OF_TWO = re.compile(r"(?:^|:)(?:i?send|i?recv)\b", re.IGNORECASE)
# Calls whose sizes may differ between ranks.
OWN_SIZES = re.compile(r"gather|scatter|all_?to_?all|send|recv|barrier", re.IGNORECASE)


@dataclass(frozen=True)
class RankProgress:
    """The progress of a rank in the collectives of one group. enqueued: the highest call number. calls: the newest
    calls, by number. within: True if the rank waits in a call according to its stack, False if it has finished its last
    call, None if unknown. stuck: the call that timed out, 0 if none is known."""

    rank: int
    node: str
    enqueued: int
    within: bool | None
    source: str
    calls: Mapping[int, Collective] = field(default_factory=dict)
    stuck: int = 0


@once
def progress(case: LaunchCase) -> list[RankProgress]:
    """Return the progress of each rank that reported it, by rank."""
    _, found = watched(case)
    groups = Counter(flight["group"] for flight in case.flights.values())
    group = max(groups, key=lambda one: groups[one], default="")  # numbers of different groups are not comparable
    for rank, flight in case.flights.items():
        if flight["group"] == group:
            calls = {one["sequence"]: one for one in flight["last"] if one["sequence"] and not of_two(one)}
            within = within_a_call(case.shots[rank][1]) if rank in case.shots else ended_within_a_call(case, rank)
            found[rank] = RankProgress(
                rank, case.node_of(rank), flight["enqueued"], within, "torch's flight recorders", calls
            )
    return [found[rank] for rank in sorted(found)]


@once
def watched(case: LaunchCase) -> tuple[str, dict[int, RankProgress]]:
    """Return the group with the most ranks whose watchdogs printed their progress, and this progress by rank. Numbers
    of different groups are not comparable."""
    by_group: dict[str, dict[int, RankProgress]] = {}
    for end in case.seen["ranks"]:
        pending: dict[int, Collective] = {}  # calls that timed out, before the line that names their group
        for line in end["stderr"].splitlines():
            if "WorkNCCL(" not in line and "nqueued" not in line:
                continue
            named, late, work = GROUP.search(line), TIMED_OUT.search(line), WATCHDOG.search(line)
            if late and late["sequence"]:  # torch 1 prints no number
                number = int(late["sequence"])
                pending[number] = {
                    "sequence": number,
                    "operation": late["operation"],
                    "sizes": late["size"] or "",
                    "types": "",
                    "state": "timed out",
                }
            if work or (late and named):
                add_words(by_group.setdefault(named["group"] if named else "", {}), end, pending, work)
        if pending and not any(end["rank"] in known for known in by_group.values()):
            add_words(by_group.setdefault("", {}), end, pending, None)
    group = max(by_group, key=lambda one: len(by_group[one]), default="")
    return group, by_group.get(group, {})


def add_words(
    known: dict[int, RankProgress], end: RankEnd, pending: dict[int, Collective], work: re.Match[str] | None
) -> None:
    """Add what the watchdog of a rank printed about one group."""
    before = known.get(end["rank"])
    calls = {**(before.calls if before else {}), **pending}
    pending.clear()
    stuck = min(calls, default=0)
    enqueued, completed = (int(work["enqueued"]), int(work["completed"])) if work else (stuck, stuck - 1)
    known[end["rank"]] = RankProgress(
        end["rank"], end["node"], enqueued, enqueued > completed, BY_WATCHDOG, calls, stuck
    )


def silent(case: LaunchCase) -> dict[int, str]:
    """Return the ranks that did not time out in a collective of all ranks in which the others did, with the collective.
    Only nodes that have printed anything count."""
    group, known = watched(case)
    stuck = Counter(one.stuck for one in known.values() if one.stuck)
    if group not in DEFAULT_GROUPS or not stuck:
        return {}
    number, times = stuck.most_common(1)[0]
    operation = next(one.calls[number]["operation"] for one in known.values() if number in one.calls)
    heard = {one["node"] for one in case.seen["ranks"] if one["stderr"]}
    heard |= {one["node"] for one in case.seen["nodes"] if one["log"]}
    said = f"{times} ranks timed out in collective {number} ({operation})"
    there = (one for one in case.seen["ranks"] if one["node"] in heard and one["rank"] not in known)
    return {one["rank"]: said for one in there if "WorkNCCL(" not in one["stderr"]}  # in another group


def ended_within_a_call(case: LaunchCase, rank: int) -> bool | None:
    """Return whether the exception that ended a rank was raised within a call. The last frame of the traceback is the
    innermost."""
    frames = next((FRAME.findall(one.traceback) for one in case.all_failures if one.rank == rank), [])
    return any(WITHIN.search(frame) for frame in frames[-INNERMOST:]) if frames else None


def within_a_call(shot: RankShot) -> bool | None:
    """Return whether a rank waits in a call. With NCCL, its stack can be elsewhere: the GPU waits."""
    if any(one["state"] == STARTED for one in (shot["flight"] or {"last": []})["last"]):
        return True
    if shot["stack"]:
        return any(WITHIN.search(frame) for frame in shot["stack"][:INNERMOST])
    last = shot["flight"]["last"][-1:] if shot["flight"] else []
    return False if last and last[0]["state"] == COMPLETED else None


def behind(case: LaunchCase) -> dict[int, RankProgress]:
    """Return the ranks that have begun fewer calls than another rank and are not waiting in a call now."""
    known = progress(case)
    most = max((one.enqueued for one in known), default=0)
    return {one.rank: one for one in known if one.enqueued < most and one.within is False}


def furthest(case: LaunchCase) -> RankProgress | None:
    return max(progress(case), key=lambda one: one.enqueued, default=None)


def difference(case: LaunchCase, of: Callable[[Collective], str]) -> str:
    """Describe the first call in which the ranks differ; "" if all known calls match."""
    known = progress(case)
    for number in sorted({number for one in known for number in one.calls}):
        with_it = [one for one in known if number in one.calls]
        values = {one.rank: of(one.calls[number]) for one in with_it}
        if len(set(values.values()) - {""}) > 1:
            return (f"call {number}: " if number else "") + ", ".join(
                in_words(value, values) for value in dict.fromkeys(values.values())
            )
    return ""


def apart(case: LaunchCase) -> str:
    """Describe the calls that timed out if they differ between ranks: then some ranks left out a call, or added one."""
    stuck = {one.rank: f"timed out in call {one.stuck}" for one in progress(case) if one.stuck}
    values = list(dict.fromkeys(stuck.values()))
    return ", ".join(in_words(value, stuck) for value in values) if len(values) > 1 else ""


def in_words(value: str, values: Mapping[int, str]) -> str:
    ranks = [str(rank) for rank, one in values.items() if one == value]
    return f"rank{'s' if len(ranks) > 1 else ''} {' '.join(ranks[:8])}{' …' if len(ranks) > 8 else ''} {value}"


def of_two(call: Collective) -> bool:
    """Return whether a call is point-to-point; torch numbers these separately."""
    return OF_TWO.search(call["operation"]) is not None


def operation(call: Collective) -> str:
    """Return the operation without its backend prefix."""
    return call["operation"].rpartition(":")[2]


def sizes(call: Collective) -> str:
    """Return the operation and its sizes; "" for an operation whose sizes can differ between ranks."""
    return "" if OWN_SIZES.search(call["operation"]) else f"{operation(call)} of {call['sizes']}"


def types(call: Collective) -> str:
    return "" if OWN_SIZES.search(call["operation"]) or not call["types"] else f"{operation(call)} of {call['types']}"
