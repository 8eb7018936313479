"""Choose at most one node with a hardware fault for automatic quarantine after a health check."""

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

# The only findings that cause a quarantine, and only as a fail: reported by the hardware or its driver, about this node
# alone, and not caused by another program, setting or peer. The worst come first.
HARD = {
    LOST.id: "a GPU has fallen off the bus, so no rank can use it, and its processes have failed",
    MEMORY_UNREPAIRABLE.id: "the driver reports memory that cannot be repaired",
    REMAP_FAILED.id: "no spare row was left for a faulty memory row (NVIDIA replaces GPUs with this fault)",
    ECC_SRAM_THRESHOLD.id: "the GPU reports too many uncorrectable errors",
    ECC_UNCORRECTED.id: "an uncorrectable memory error occurred, so results are wrong or the process was killed",
    XID.id: "within the last day, an Xid was logged that requires a reset, a restart or an inspection (NVIDIA)",
    SXID.id: "within the last day, an NVSwitch had a fatal error",
    INACTIVE.id: "some NVLinks of the GPU are down, so collectives hang or are slow",
    COLLECTIVE_WRONG.id: "an all-reduce between the ranks of this node returned a wrong result",
}


@dataclass(frozen=True)
class SelfQuarantine:
    """The decision about an automatic quarantine. node: the node to quarantine, or "". reason: the fault of this node.
    notes: sentences about nodes with faults that were not quarantined."""

    node: str = ""
    reason: str = ""
    notes: list[str] = field(default_factory=list)


def decide(
    findings: Sequence[Mapping[str, Any]], nodes: Mapping[str, bool | Mapping[str, Any]], chosen: Sequence[str] = ()
) -> SelfQuarantine:
    """Return the node to quarantine. findings: the findings of a verdict. nodes: cluster_quarantined by node, in
    inventory order. chosen: the value of cluster_launch_nodes."""
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
            notes=[f"{first} was not quarantined automatically, because cluster_launch_nodes lists this node."]
        )
    if len(taking_part) < 2:
        return SelfQuarantine(notes=[f"{first} was not quarantined automatically, because no other node participates."])
    worst = next(one for one in faults if one["node"] == first)
    others = [f"{few(broken[1:])}: not quarantined, because the quarantine of {first} must be confirmed first."]
    return SelfQuarantine(first, f"{worst['id']}: {worst['summary']}", others if len(broken) > 1 else [])


def unconfirmed(node: str, said: bool | Mapping[str, Any], broken: Sequence[str]) -> str:
    confirm = playbook("playbooks/quarantine.yml", node=node, reason="...")
    release = playbook("playbooks/release.yml", node=node)
    return (
        f"{few(broken)} {'was' if len(broken) == 1 else 'were'} not quarantined, because a quarantine is unconfirmed: "
        f"{node} is quarantined{words(said)}. Confirm the quarantine with {confirm}, or end it with {release}"
    )
