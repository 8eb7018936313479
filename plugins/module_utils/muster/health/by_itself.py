"""Which node is quarantined after a look at its health without anybody's word: one, for a hard fault of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..members.quarantine import AUTOMATIC, words
from ..verdict.commands import playbook
from ..verdict.words import few
from .collective import COLLECTIVE_WRONG
from .gpu import LOST
from .gpu_memory import ECC_SRAM_THRESHOLD, ECC_UNCORRECTED, MEMORY_UNREPAIRABLE, REMAP_FAILED
from .kernel_log import SXID, XID
from .nvlink import INACTIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The only findings that are acted on, and only as a fail: what the hardware or its driver says itself, about this node
# alone, and what no other program, setting or peer brings about. The worst come first.
HARD = {
    LOST.id: "a GPU has left the bus: no rank finds it, and what ran on it is gone",
    MEMORY_UNREPAIRABLE.id: "memory that the driver says cannot be repaired",
    REMAP_FAILED.id: "no spare row was left for one that is broken: NVIDIA has the GPU replaced",
    ECC_SRAM_THRESHOLD.id: "the GPU itself counts too many uncorrectable errors",
    ECC_UNCORRECTED.id: "an uncorrectable error: what was computed with it is wrong, or was ended by it",
    XID.id: "within a day, an Xid for which NVIDIA's catalogue asks for a reset, a restart or a look inside",
    SXID.id: "within a day, a fatal error of an NVSwitch",
    INACTIVE.id: "links between GPUs are down that are up on their neighbours: collectives hang or crawl",
    COLLECTIVE_WRONG.id: "GPUs of this node alone add up to something wrong",
}


@dataclass(frozen=True)
class SelfQuarantine:
    """node: who is quarantined, "" for nobody. reason: why. notes: sentences on what was not done, and why."""

    node: str = ""
    reason: str = ""
    notes: list[str] = field(default_factory=list)


def decide(
    findings: Sequence[Mapping[str, Any]], nodes: Mapping[str, bool | Mapping[str, Any]], chosen: Sequence[str] = ()
) -> SelfQuarantine:
    """findings: of a verdict. nodes: of each what cluster_quarantined says, in the inventory's order. chosen:
    cluster_launch_nodes."""
    faults = [one for one in findings if one["status"] == "fail" and one["id"] in HARD and not one.get("peer")]
    order = list(HARD)
    faults.sort(key=lambda one: order.index(one["id"]))
    taking_part = [name for name, said in nodes.items() if not said and (not chosen or name in chosen)]
    broken = list(dict.fromkeys(one["node"] for one in faults if one["node"] in taking_part))
    if not broken:
        return SelfQuarantine()
    waiting = [name for name, said in nodes.items() if isinstance(said, dict) and said.get(AUTOMATIC)]
    if waiting:
        return SelfQuarantine(notes=[unconfirmed(waiting[0], nodes[waiting[0]], broken)])
    first = broken[0]
    if first in chosen:
        return SelfQuarantine(
            notes=[f"{first} is not quarantined by itself: it is in cluster_launch_nodes, which names it."]
        )
    if len(taking_part) < 2:
        return SelfQuarantine(notes=[f"{first} is not quarantined by itself: no node would be left that takes part."])
    worst = next(one for one in faults if one["node"] == first)
    others = [f"{few(broken[1:])}: not quarantined as well, because no person has looked at {first} yet."]
    return SelfQuarantine(first, f"{worst['id']}: {worst['summary']}", others if len(broken) > 1 else [])


def unconfirmed(node: str, said: bool | Mapping[str, Any], broken: Sequence[str]) -> str:
    confirm = playbook("playbooks/quarantine.yml", node=node, reason="...")
    release = playbook("playbooks/release.yml", node=node)
    return (
        f"{few(broken)} {'is' if len(broken) == 1 else 'are'} not quarantined by itself: {node} is quarantined"
        f"{words(said)}, and no person has looked at it yet. Confirm that with {confirm} or end it with {release}"
    )
