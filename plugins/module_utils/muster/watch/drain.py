"""What a node's own check does in Slurm: drain the node, resume it, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .answer import FAULT, NODE, OK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .answer import CheckAnswer

OURS = "muster: "  # begins the reason of each drain by Muster
QUARANTINE = f"{OURS}quarantine: "
DRAINED = ("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING")
# A reason may contain any text, also names of fields. It follows the other fields, with who set it and when.
LINE = re.compile(r"NodeName=(\S+).*? State=(\S+)(?:.*? Reason=(.*))?")
MOST_REASON = 200


@dataclass(frozen=True)
class SlurmNode:
    """A node as `scontrol -o show node` prints it. state: words such as IDLE+DRAIN. reason: up to the end of
    the line."""

    name: str
    state: str
    reason: str

    @classmethod
    def read(cls, line: str) -> SlurmNode | None:
        found = LINE.match(line)
        return cls(*found.groups("")) if found else None

    @property
    def drained(self) -> bool:
        return any(word.rstrip("*~#!%$@^-") in DRAINED for word in self.state.split("+"))

    @property
    def by_muster(self) -> bool:
        return self.drained and self.reason.startswith(OURS)


@dataclass(frozen=True)
class SlurmStep:
    """drain: the reason with which to drain the node, "" for none. resume: whether to resume it. note: why nothing is
    done although there is a fault. holds: whether no job may start, because Muster drains or has drained the node."""

    drain: str = ""
    resume: bool = False
    note: str = ""
    holds: bool = False


def decide(answer: CheckAnswer, nodes: Iterable[SlurmNode], own: str, quarantine: str | None = None) -> SlurmStep:
    """Return the step for a node.

    Only a fault of the node drains it, and only one node, until a person has resumed that node or confirmed the drain
    by a reason of their own. Unknown, and faults that users caused, do nothing. A drain by an administrator stays.

    nodes: all nodes of the cluster. own: name of this node. quarantine: the reason of its quarantine, None if it is not
    quarantined.
    """
    known = {one.name: one for one in nodes}
    mine = known.get(own)
    if mine is None:
        return SlurmStep(note=f"Slurm does not know the node {own}")
    if quarantine is not None:
        return SlurmStep(holds=True) if mine.drained else SlurmStep(drain=_reason(QUARANTINE, quarantine), holds=True)
    if answer.status == FAULT and answer.owner == NODE:
        if mine.drained:
            return SlurmStep(holds=mine.by_muster)
        others = [one.name for one in known.values() if one.by_muster and not one.reason.startswith(QUARANTINE)]
        if others:
            return SlurmStep(note=f"not drained, because the drain of {others[0]} must be confirmed first")
        return SlurmStep(drain=_reason(OURS, answer.reason), holds=True)
    return SlurmStep(resume=answer.status == OK and mine.by_muster)


def _reason(begin: str, text: str) -> str:
    """Return one line without "=", so that the reason cannot look like fields of scontrol."""
    return f"{begin}{' '.join(text.replace('=', ':').split())}"[:MOST_REASON]
