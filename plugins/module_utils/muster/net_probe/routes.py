"""Find wrong routes: packets to another node leave through an interface other than the training interface, and
connections fail.

A firewall that drops packets causes the same symptoms. The route shows the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inspect.training_network import PEER_OTHER_INTERFACE
from ..verdict.commands import on_node
from ..verdict.finding import evidence
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding
    from .cluster import Cluster
    from .links import Link

# Outcomes of packets sent to the wrong network.
LOST = {"dropped", "no_route", "prohibited"}


def astray(cluster: Cluster) -> list[Link]:
    """Return the links that leave through the wrong interface and whose connections fail in at least one direction."""
    lost = {(link.origin, link.target) for link in cluster.links if is_lost(link)}
    return [
        link
        for link in cluster.links
        if leaves_elsewhere(link, cluster) and {(link.origin, link.target), (link.target, link.origin)} & lost
    ]


def is_lost(link: Link) -> bool:
    tried = set(link.ports.values()) - {"not_tried"}
    return bool(tried) and tried <= LOST


def leaves_elsewhere(link: Link, cluster: Cluster) -> bool:
    origin = cluster.node(link.origin)
    training = origin.carrier(origin.address)
    # An address on lo may be routed through any interface (routed fabric).
    return bool(link.way and training) and "lo" not in (link.way, training) and link.way != training


def judge(cluster: Cluster, links: list[Link]) -> Iterator[Finding]:
    """Report the links that astray() returns."""
    by: dict[tuple[str, str], list[str]] = {}
    for link in links:
        by.setdefault((link.origin, link.way), []).append(link.target)
    for (origin, way), targets in by.items():
        node = cluster.node(origin)
        needed = [target for target in targets if {origin, target} <= set(cluster.participants)]
        address = cluster.node(targets[0]).address
        training = node.carrier(node.address)
        yield (PEER_OTHER_INTERFACE.fail if needed else PEER_OTHER_INTERFACE.warn)(
            origin,
            f"the route to {few(targets)} uses {way}, but the training address is on {training}, so connections and"
            " replies are lost",
            "Remove the route, or add a route for the training network. Show the route with",
            on_node(origin, f"ip route get {address}"),
            peer=targets[0] if len(targets) == 1 else None,
            observed=way,
            expected=training,
            evidence=evidence(f"ip route get {address}", way),
        )
