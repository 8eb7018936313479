"""Routes that lead astray: what is for a peer leaves by another interface than the training one, and no call arrives.

A firewall drops calls just so; the route tells the two apart.
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

# What becomes of packets that are sent where the peer is not.
LOST = {"dropped", "no_route", "prohibited"}


def astray(cluster: Cluster) -> list[Link]:
    """The links whose origin sends by another interface, where no call comes through in one direction or the other."""
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
    # An address on lo is reached, and leaves, by whatever link the fabric has routed it to.
    return bool(link.way and training) and "lo" not in (link.way, training) and link.way != training


def judge(cluster: Cluster, links: list[Link]) -> Iterator[Finding]:
    """links: those that are astray."""
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
            f"its route to {few(targets)} leaves by {way}, and its training address is on {training}: no call comes"
            " through, and no answer to a call from there",
            "Take the route away, or give the training network one of its own; it is shown by",
            on_node(origin, f"ip route get {address}"),
            peer=targets[0] if len(targets) == 1 else None,
            observed=way,
            expected=training,
            evidence=evidence(f"ip route get {address}", way),
        )
