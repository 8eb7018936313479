"""Combine the findings of a probe with the skipped checks, and build the result to save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.finding import Skipped, add_up
from ..verdict.words import plural
from . import names, quality, reach
from .cluster import untried

if TYPE_CHECKING:
    from ..verdict.finding import Finding
    from .cluster import Cluster
    from .links import Link

LINKS = Check(
    "net.links",
    seen="stand-in",
    reads="all connections between the nodes",
    fires="never: passes if a node has no finding about its links",
    fix="No action is needed",
)
PROBE_FAILED = Check(
    "net.probe.failed",
    seen="stand-in",
    reads="the result of the probe on the node",
    fires="the probe could not run on the node (unknown)",
    fix="Fix the reported cause, then run the probe again",
)


def judge(cluster: Cluster) -> tuple[list[Finding], list[Skipped]]:
    """Return the findings, and the skipped checks with reasons."""
    found = [
        PROBE_FAILED.unknown(
            node.name,
            f"the network probe failed: {node.why}",
        )
        for node in cluster.nodes
        if node.why and node.name not in cluster.left_out
    ]
    found += [*names.judge(cluster), *reach.judge(cluster), *quality.judge(cluster)]
    odd = {name for finding in found for name in (finding.node, finding.peer)}
    for node in cluster.nodes:
        links = [link for link in cluster.touching(node.name) if both_serve(link, cluster)]
        good = sum(link.outcome == "ok" for link in links)
        if node.name not in odd and good:
            bad = (
                f"; problems of {plural(len(links) - good, 'other link')} are caused by other nodes"
                if good < len(links)
                else ""
            )
            found.append(
                LINKS.passed(
                    node.name,
                    f"connections work on {plural(good, 'link')} to and from other nodes{bad}",
                )
            )
    return found, skips(cluster)


def both_serve(link: Link, cluster: Cluster) -> bool:
    return cluster.node(link.origin).served is not None and cluster.node(link.target).served is not None


def skips(cluster: Cluster) -> list[Skipped]:
    found = [Skipped(id="net", node=name, why=why) for name, why in cluster.left_out.items()]
    if len(cluster.nodes) < 2:
        found.append(Skipped(id="net", why="the cluster has only one node"))
    for node in cluster.nodes:
        if node.served is None:
            continue
        if node.interfaces is None:
            found.append(Skipped(id="net.interface", node=node.name, why="the program ip (iproute2) is missing"))
        why = untried(node.served, cluster.port)
        if why:
            found.append(Skipped(id="net.master_port", node=node.name, why=why))
    return found


def result(cluster: Cluster) -> dict[str, Any]:
    """Return the result of the module net_probe."""
    findings, skipped = judge(cluster)
    return {
        "network": {
            "schema": 1,
            "nodes": cluster.names,
            "port": cluster.port,
            "links": [link.as_dict() for link in cluster.links],
        },
        "findings": [finding.as_dict() for finding in findings],
        # Skipped checks are only in the verdict: Ansible treats a result with the key "skipped" as a skipped task.
        "verdict": add_up(findings, skipped=skipped),
    }
