"""Cluster health: combines the findings of each node, of the links between nodes and of the comparison of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..inspect.node import UNREACHABLE
from ..net_probe.reach import MASTER_PORT_FOREIGN
from ..packages import unencrypted
from ..verdict import access
from ..verdict.commands import ping
from ..verdict.finding import Finding, Skipped, as_lines, findings_in
from . import consistency
from .jobs import PORT_HELD

if TYPE_CHECKING:
    from collections.abc import Mapping

# A finding of the network probe, and the node's own finding on the same fault, which is more exact.
SAID_BY_THE_NODE = {MASTER_PORT_FOREIGN.id: PORT_HELD.id}


@dataclass(frozen=True)
class Nodes:
    """The results that the cluster's health is computed from.

    plan: the result of health_plan. looks: {node: result of nccl_health}. lost: {node: why the node could not be
    checked}. left_out: nodes excluded by --limit. network: the result of net_probe. rails: the result of rdma_rails.
    """

    plan: Mapping[str, Any]
    looks: Mapping[str, Mapping[str, Any]]
    lost: Mapping[str, str]
    left_out: list[str]
    network: Mapping[str, Any]
    rails: Mapping[str, Any] = field(default_factory=dict)

    @property
    def between(self) -> tuple[Mapping[str, Any], ...]:
        """The results of checks between nodes."""
        return (self.network, self.rails)


@dataclass
class Health:
    """The health of the cluster. findings, skipped, ran: as in a verdict. refusal: one sentence for each reason that
    blocks a launch; "" if a launch can start.

    spared: number of failed checks that are reported as warnings.
    """

    findings: list[Finding]
    skipped: list[Skipped]
    ran: set[str]
    refusal: str
    spared: int = 0


def judge(nodes: Nodes, gate: str) -> Health:
    """Combine all results. gate: "fail", or "warn" to report failed checks only as warnings.

    Failed checks on a node that does not participate in launches are also reported as warnings.
    """
    found: dict[tuple[str, str, str | None, str], Finding] = {}
    for finding in every_finding(nodes):
        found.setdefault((finding.id, finding.node, finding.peer, finding.summary), finding)
    said = {(finding.id, finding.node) for finding in found.values()}
    findings = [one for one in found.values() if (SAID_BY_THE_NODE.get(one.id), one.node) not in said]
    launched = set(nodes.plan["participants"])
    against = (
        [] if gate == "warn" else [one for one in findings if one.status == "fail" and {one.node, one.peer} & launched]
    )
    spared = [one for one in findings if one.status == "fail" and one not in against]
    findings = [replace(one, status="warn") if one in spared else one for one in findings]
    return Health(
        findings,
        every_skip(nodes),
        every_check(nodes),
        "\n".join(f"{line}." for line in as_lines(against)),
        len(spared),
    )


def every_finding(nodes: Nodes) -> list[Finding]:
    launched = nodes.plan["participants"]
    found = []
    for name, why in nodes.lost.items():
        what, fix = access.explain(why)
        note = UNREACHABLE.fail if name in launched else UNREACHABLE.unknown
        words = (f"could not be checked: {what or why}", fix or "Test the connection with", "" if what else ping(name))
        found.append(note(name, *words))
    for look in nodes.looks.values():
        found += findings_in(look)
    for name, values in nodes.plan.get("sources", {}).items():
        found += unencrypted.judge(name, values)
    found += [finding for one in nodes.between for finding in findings_in(one)]
    return [*found, *consistency.judge({name: look["traits"] for name, look in nodes.looks.items()})]


def every_skip(nodes: Nodes) -> list[Skipped]:
    skipped = [Skipped(id="node", node=name, why="the node is quarantined") for name in nodes.plan["quarantined"]]
    skipped += [Skipped(id="node", node=name, why="excluded by --limit") for name in nodes.left_out]
    for name, look in nodes.looks.items():
        entries = look["verdict"]["coverage"]["skipped"]
        skipped += [Skipped(id=entry["id"], node=name, why=entry["why"]) for entry in entries]
    coverages = [one["verdict"]["coverage"] for one in nodes.between if "verdict" in one]
    return [*skipped, *(entry for coverage in coverages for entry in coverage["skipped"])]


def every_check(nodes: Nodes) -> set[str]:
    coverages = [one["verdict"]["coverage"] for one in (*nodes.looks.values(), *nodes.between) if "verdict" in one]
    return {name for coverage in coverages for name in coverage["ran"]}
