"""Choose the canary, the order of the batches, and the trial launches of each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.words import few
from .model import Order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import UpgradeNode, UpgradeRequest

WAIT = "Set -e wait=SECONDS to wait for the node, or run this again later"


def put_in_order(nodes: Sequence[UpgradeNode], request: UpgradeRequest) -> Order:
    """Return the order of the upgrade. nodes: all nodes in inventory order."""
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
    """Return (canary, reason why there is none).

    A node that already has the new version from an incomplete run is preferred, because a defect of the new version
    would already affect it. Otherwise the canary is the last idle node in the inventory.
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
        return None, f"No node is idle, and busy nodes are not changed. {said}. {WAIT}"
    return None, f"{few([node.name for node in due])}: quarantined, and no other node can be the canary"


def _named(nodes: Sequence[UpgradeNode], request: UpgradeRequest) -> tuple[UpgradeNode | None, str]:
    node = next((node for node in nodes if node.name == request.canary), None)
    if node is None:
        names = ", ".join(one.name for one in nodes)
        return None, f"canary is {request.canary}, which is not a node of the inventory. Use one of {names}"
    if node.silent:
        return None, f"the canary {node.name} does not respond: {node.silent}"
    if node.quarantined:
        return None, f"the canary {node.name} is quarantined, so launches cannot test it. Choose another canary"
    if node.busy and not request.wait:
        return None, f"the canary {node.name} is busy: {'; '.join(node.busy)}. {WAIT}"
    return node, ""


def trials(
    batch: Sequence[str], proved: Sequence[str], nodes: Sequence[UpgradeNode], *, first: bool
) -> list[list[str]]:
    """Return the trial launches of a batch. Each launch uses idle nodes with equal versions.

    batch: nodes that have just been changed. proved: idle nodes that had the version before or passed their trial. The
    first node is tested alone, so that this node must have caused a failure, and then together with another node. Later
    batches are tested together with a proved node, so that a launch spans new and proved nodes.
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
