"""Which node is the first, which come behind it in batches, and what is tried on each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.words import few
from .model import Order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import UpgradeNode, UpgradeRequest

WAIT = "Wait for it with -e wait=SECONDS, or type this again later"


def put_in_order(nodes: Sequence[UpgradeNode], request: UpgradeRequest) -> Order:
    """nodes: all of the inventory, in its order."""
    silent = {node.name: node.silent for node in nodes if node.silent}
    there = [node for node in nodes if not node.silent]
    due = [node for node in there if node.changes]
    done = tuple(node.name for node in there if not node.changes)
    if not due:
        return Order(proved=done, silent=silent)
    if request.rollback:
        return Order((tuple(node.name for node in due),), done, silent)
    canary, refusal = _canary(nodes, there, due, request)
    if refusal or canary is None:
        return Order(proved=done, silent=silent, refusals=(refusal,))
    behind = sorted((node for node in due if node is not canary), key=lambda node: bool(node.busy))
    size = request.batch or max(1, len(nodes) // 4)
    batches = [behind[begin : begin + size] for begin in range(0, len(behind), size)]
    named = ((canary.name,), *(tuple(node.name for node in batch) for batch in batches))
    return Order(named, tuple(name for name in done if name != canary.name), silent)


def _canary(
    nodes: Sequence[UpgradeNode], there: Sequence[UpgradeNode], due: Sequence[UpgradeNode], request: UpgradeRequest
) -> tuple[UpgradeNode | None, str]:
    """The first node, or why there is none.

    One that has it already, from a run that did not come to its end, is the one to be tried: what is new is wrong there
    already, if it is wrong. Otherwise the last of the inventory that is idle.
    """
    if request.canary:
        return _named(nodes, request)
    usable = [node for node in there if not node.quarantined]
    for candidates in ([node for node in usable if not node.changes], [node for node in usable if node.changes]):
        idle = [node for node in candidates if not node.busy]
        if idle:
            return idle[-1], ""
    candidates = [node for node in due if not node.quarantined]
    if candidates and request.wait:
        return candidates[-1], ""
    if candidates:
        said = "; ".join(f"{node.name}: {node.busy[0]}" for node in candidates)
        return None, f"No node is idle, and none is touched under somebody's work. {said}. {WAIT}"
    return None, f"{few([node.name for node in due])}: quarantined, and no other node is there to be tried first"


def _named(nodes: Sequence[UpgradeNode], request: UpgradeRequest) -> tuple[UpgradeNode | None, str]:
    node = next((node for node in nodes if node.name == request.canary), None)
    if node is None:
        names = ", ".join(one.name for one in nodes)
        return None, f"canary is {request.canary}, which is no node of the inventory. Name one of {names}"
    if node.silent:
        return None, f"{node.name}, which is to be the canary, does not answer: {node.silent}"
    if node.quarantined:
        return None, f"{node.name}, which is to be the canary, is quarantined, and no launch tries it. Name another one"
    if node.busy and not request.wait:
        return None, f"{node.name}, which is to be the canary, is busy: {'; '.join(node.busy)}. {WAIT}"
    return node, ""


def trials(
    batch: Sequence[str], proved: Sequence[str], nodes: Sequence[UpgradeNode], *, first: bool
) -> list[list[str]]:
    """The launches that try a batch: each is of nodes that have the same versions, and that nobody works on.

    batch: those that have just changed. proved: those that had it, or were tried before, and are idle now. The first
    node is tried alone, so that what fails is its own, and then with another one. A batch behind it is tried with one
    that was good, so that a launch crosses from the new ones to the old.
    """
    launched = {node.name for node in nodes if not node.quarantined}
    these = [name for name in batch if name in launched]
    others = [name for name in proved if name in launched and name not in these]
    if not these:
        return []
    together = [node.name for node in nodes if node.name in (*these, *others[:1])]
    if first:
        return [these, together] if others else [these]
    return [together]
