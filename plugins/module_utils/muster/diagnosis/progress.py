"""How far each rank had come in what the ranks do together, by torch's flight recorders and NCCL's watchdogs.

Of Gloo's entries the number, the operation and the sizes can be believed, and not whether they are completed. So
whether a rank waits within a collective is taken from its stack.
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
    from .evidence import Collective, RankShot

WATCHDOG = re.compile(BY_ID["nccl.work"].pattern)
COMPLETED = "completed"
# Python frames behind which a rank may wait for others: in a collective, or in backward, where DDP waits.
WITHIN = re.compile(r"torch/(?:distributed|autograd|nn/parallel)/")
INNERMOST = 3  # frames that are looked at; further out, all of a step lies in DDP's forward
OF_TWO = re.compile(r"(?:^|:)(?:i?send|i?recv)\b", re.IGNORECASE)
# Calls that come with other sizes from each rank, without anything being wrong.
OWN_SIZES = re.compile(r"gather|scatter|all_?to_?all|send|recv|barrier", re.IGNORECASE)


@dataclass(frozen=True)
class RankProgress:
    """enqueued: the highest number. calls: the newest, by their numbers. within: whether it waits for others, by its
    stack, or has finished its last call; None where neither is known."""

    rank: int
    node: str
    enqueued: int
    within: bool | None
    source: str
    calls: Mapping[int, Collective] = field(default_factory=dict)


@once
def progress(case: LaunchCase) -> list[RankProgress]:
    """Of each rank that is known of, by its number."""
    found: dict[int, RankProgress] = {}
    for end in case.seen["ranks"]:
        said = list(WATCHDOG.finditer(end["stderr"]))
        if said:
            enqueued, completed = int(said[-1]["enqueued"]), int(said[-1]["completed"])
            found[end["rank"]] = RankProgress(
                end["rank"], end["node"], enqueued, enqueued > completed, "NCCL's watchdog"
            )
    groups = Counter(flight["group"] for flight in case.flights.values())
    group = max(groups, key=lambda one: groups[one], default="")  # numbers of different groups say nothing together
    for rank, flight in case.flights.items():
        if flight["group"] == group:
            calls = {one["sequence"]: one for one in flight["last"] if one["sequence"] and not of_two(one)}
            within = within_a_call(case.shots[rank][1]) if rank in case.shots else ended_within_a_call(case, rank)
            found[rank] = RankProgress(
                rank, case.node_of(rank), flight["enqueued"], within, "torch's flight recorders", calls
            )
    return [found[rank] for rank in sorted(found)]


def ended_within_a_call(case: LaunchCase, rank: int) -> bool | None:
    """By the exception that ended it, the innermost frame of which is the last."""
    frames = next((FRAME.findall(one.traceback) for one in case.all_failures if one.rank == rank), [])
    return any(WITHIN.search(frame) for frame in frames[-INNERMOST:]) if frames else None


def within_a_call(shot: RankShot) -> bool | None:
    if shot["stack"]:
        return any(WITHIN.search(frame) for frame in shot["stack"][:INNERMOST])
    last = shot["flight"]["last"][-1:] if shot["flight"] else []
    return False if last and last[0]["state"] == COMPLETED else None


def behind(case: LaunchCase) -> dict[int, RankProgress]:
    """The ranks that have begun fewer calls than another one, and are not within one."""
    known = progress(case)
    most = max((one.enqueued for one in known), default=0)
    return {one.rank: one for one in known if one.enqueued < most and one.within is False}


def furthest(case: LaunchCase) -> RankProgress | None:
    return max(progress(case), key=lambda one: one.enqueued, default=None)


def difference(case: LaunchCase, of: Callable[[Collective], str]) -> str:
    """The first call of one number in which the ranks differ, in words; "" where those that are known are the same."""
    known = progress(case)
    for number in sorted({number for one in known for number in one.calls}):
        with_it = [one for one in known if number in one.calls]
        values = {one.rank: of(one.calls[number]) for one in with_it}
        if len(set(values.values()) - {""}) > 1:
            return f"call {number}: " + ", ".join(in_words(value, values) for value in dict.fromkeys(values.values()))
    return ""


def in_words(value: str, values: Mapping[int, str]) -> str:
    ranks = [str(rank) for rank, one in values.items() if one == value]
    return f"rank{'s' if len(ranks) > 1 else ''} {' '.join(ranks[:8])}{' …' if len(ranks) > 8 else ''} {value}"


def of_two(call: Collective) -> bool:
    """Whether it is between two ranks only; those are counted apart."""
    return OF_TWO.search(call["operation"]) is not None


def operation(call: Collective) -> str:
    """Without the backend that stands before it."""
    return call["operation"].rpartition(":")[2]


def sizes(call: Collective) -> str:
    """Nothing where ranks may well differ."""
    return "" if OWN_SIZES.search(call["operation"]) else f"{operation(call)} of {call['sizes']}"


def types(call: Collective) -> str:
    return "" if OWN_SIZES.search(call["operation"]) else f"{operation(call)} of {call['types']}"
