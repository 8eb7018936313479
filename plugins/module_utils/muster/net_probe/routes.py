"""Find packets that are sent the wrong way: through an interface other than the training interface, or to a wrong
hardware address, so that connections fail.

A firewall that drops packets causes the same symptoms. The route and the neighbor entry show the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inspect.training_network import PEER_OTHER_INTERFACE
from ..verdict.check import Check
from ..verdict.commands import on_node
from ..verdict.finding import evidence
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding
    from .cluster import Cluster
    from .links import Link

PEER_NEIGHBOUR = Check(
    "net.peer.neighbour",
    seen="sandbox",
    reads="the kernel's neighbor entry of each peer, and the hardware addresses of the peer's interfaces",
    fires="packets to a peer are sent to a hardware address that the peer does not have, and connections fail (warn;"
    " fail between launch participants)",
    fix="Delete the neighbor entry, and find out what created it",
)
# Outcomes of packets sent to the wrong network.
LOST = {"dropped", "no_route", "prohibited"}


def astray(cluster: Cluster) -> list[Link]:
    """Return the links that are sent the wrong way and whose connections fail in at least one direction."""
    lost = {(link.origin, link.target) for link in cluster.links if is_lost(link)}
    return [
        link
        for link in cluster.links
        if (leaves_elsewhere(link, cluster) or goes_to_another(link, cluster))
        and {(link.origin, link.target), (link.target, link.origin)} & lost
    ]


def is_lost(link: Link) -> bool:
    tried = set(link.ports.values()) - {"not_tried"}
    return bool(tried) and tried <= LOST


def leaves_elsewhere(link: Link, cluster: Cluster) -> bool:
    origin = cluster.node(link.origin)
    training = origin.carrier(origin.address)
    # An address on lo may be routed through any interface (routed fabric), but only the node's own addresses are on lo.
    routed = training == "lo" and link.way != "lo"
    own = link.way == "lo" and origin.carrier(cluster.node(link.target).address) != ""
    return bool(link.way and training) and not routed and not own and link.way != training


def goes_to_another(link: Link, cluster: Cluster) -> bool:
    """Return whether packets are sent to a hardware address that the target does not have. Only a router may have
    another one."""
    interfaces = cluster.node(link.target).interfaces or {}
    theirs = {seen["mac"].lower() for seen in interfaces.values() if seen.get("mac")}
    return bool(link.hardware and theirs) and not link.gateway and link.hardware.lower() not in theirs


def judge(cluster: Cluster, links: list[Link]) -> Iterator[Finding]:
    """Report the links that astray() returns."""
    by: dict[tuple[str, str], list[str]] = {}
    for link in links:
        if leaves_elsewhere(link, cluster):
            by.setdefault((link.origin, link.way), []).append(link.target)
        else:
            yield of_neighbour(link, cluster)
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


def of_neighbour(link: Link, cluster: Cluster) -> Finding:
    launched = {link.origin, link.target} <= set(cluster.participants)
    address = cluster.node(link.target).address
    return (PEER_NEIGHBOUR.fail if launched else PEER_NEIGHBOUR.warn)(
        link.origin,
        f"packets to {link.target} are sent to the hardware address {link.hardware}, which {link.target} does not have",
        "Delete the neighbor entry, or find the machine with this hardware address. Show the entry with",
        on_node(link.origin, "ip neighbour show to {address}", address=address),
        peer=link.target,
        observed=link.hardware,
        evidence=evidence("/proc/net/arp", f"{address} {link.hardware}"),
    )
