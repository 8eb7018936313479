"""Everything that the probe has to say: findings, what could not be looked at, and the shape that is kept."""

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
    reads="all of the calls between the nodes",
    fires="never: it is the pass of a node that calls others and is called by them without a finding of its own",
    fix="Nothing is to be done",
)
PROBE_FAILED = Check(
    "net.probe.failed",
    seen="stand-in",
    reads="whether the node could be asked to call the others",
    fires="the probe could not be run there (unknown)",
    fix="Fix that, then run again",
)


def judge(cluster: Cluster) -> tuple[list[Finding], list[Skipped]]:
    """The findings, and what was skipped and why."""
    found = [
        PROBE_FAILED.unknown(
            node.name,
            f"the network could not be looked at from it: {node.why}",
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
                f", and what is wrong with {plural(len(links) - good, 'other')} is not up to it"
                if good < len(links)
                else ""
            )
            found.append(
                LINKS.passed(
                    node.name,
                    f"calls come through on {plural(good, 'link')} to and from other nodes{bad}",
                )
            )
    return found, skips(cluster)


def both_serve(link: Link, cluster: Cluster) -> bool:
    return cluster.node(link.origin).served is not None and cluster.node(link.target).served is not None


def skips(cluster: Cluster) -> list[Skipped]:
    found = [Skipped(id="net", node=name, why=why) for name, why in cluster.left_out.items()]
    if len(cluster.nodes) < 2:
        found.append(Skipped(id="net", why="there is only one node, and so no link"))
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
    """What net_probe returns."""
    findings, skipped = judge(cluster)
    return {
        "network": {
            "schema": 1,
            "nodes": cluster.names,
            "port": cluster.port,
            "links": [link.as_dict() for link in cluster.links],
        },
        "findings": [finding.as_dict() for finding in findings],
        # What was skipped is in the verdict alone: a result with such a key is a skipped task to Ansible.
        "verdict": add_up(findings, skipped=skipped),
    }
