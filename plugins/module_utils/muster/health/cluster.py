"""The health of the whole cluster: what each node said of itself, what was found between them, and what they share."""

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

# What the probe sees from outside, by what the node itself says of the same thing, and knows better.
SAID_BY_THE_NODE = {MASTER_PORT_FOREIGN.id: PORT_HELD.id}


@dataclass(frozen=True)
class Nodes:
    """What is known of the nodes before anything is judged.

    plan: the result of health_plan. looks: {node: result of nccl_health}. lost: {node: why it could not be looked at}.
    left_out: nodes that --limit kept out. network: the result of net_probe. rails: that of rdma_rails.
    """

    plan: Mapping[str, Any]
    looks: Mapping[str, Mapping[str, Any]]
    lost: Mapping[str, str]
    left_out: list[str]
    network: Mapping[str, Any]
    rails: Mapping[str, Any] = field(default_factory=dict)

    @property
    def between(self) -> tuple[Mapping[str, Any], ...]:
        """What was looked at between nodes."""
        return (self.network, self.rails)


@dataclass
class Health:
    """findings, skipped, ran: as the verdict takes them. refusal: a sentence per cause, "" when a launch may begin.

    spared: how many checks failed and are reported as warnings.
    """

    findings: list[Finding]
    skipped: list[Skipped]
    ran: set[str]
    refusal: str
    spared: int = 0


def judge(nodes: Nodes, gate: str) -> Health:
    """Put everything together. gate: fail, or warn where a failed check is to be reported and no more.

    What fails on a node that takes no part in a launch is reported and no more, too.
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
        words = (f"it could not be looked at: {what or why}", fix or "Look why with", "" if what else ping(name))
        found.append(note(name, *words))
    for look in nodes.looks.values():
        found += findings_in(look)
    for name, values in nodes.plan.get("sources", {}).items():
        found += unencrypted.judge(name, values)
    found += [finding for one in nodes.between for finding in findings_in(one)]
    return [*found, *consistency.judge({name: look["traits"] for name, look in nodes.looks.items()})]


def every_skip(nodes: Nodes) -> list[Skipped]:
    skipped = [Skipped(id="node", node=name, why="it is quarantined") for name in nodes.plan["quarantined"]]
    skipped += [Skipped(id="node", node=name, why="--limit leaves it out") for name in nodes.left_out]
    for name, look in nodes.looks.items():
        entries = look["verdict"]["coverage"]["skipped"]
        skipped += [Skipped(id=entry["id"], node=name, why=entry["why"]) for entry in entries]
    coverages = [one["verdict"]["coverage"] for one in nodes.between if "verdict" in one]
    return [*skipped, *(entry for coverage in coverages for entry in coverage["skipped"])]


def every_check(nodes: Nodes) -> set[str]:
    """Ids of what was looked for, found or not."""
    coverages = [one["verdict"]["coverage"] for one in (*nodes.looks.values(), *nodes.between) if "verdict" in one]
    return {name for coverage in coverages for name in coverage["ran"]}
