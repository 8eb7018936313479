"""Find where packets of a link are dropped: on one of its nodes, or between them.

A node that gets no reply begins many further connections. Its interface counts the packets that leave, and the other
node counts the packets that its packet filters drop and the connections whose replies are lost. Other traffic only
increases these numbers, so a side is named only if the numbers leave no other explanation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .cluster import Cluster
    from .links import Link

MOST, FEW = 0.7, 0.3  # shares of the attempts that count as all and as none


class DropSide(NamedTuple):
    """Where packets are dropped. at: the node whose packet filter drops them; "" if they are lost elsewhere. words: the
    place, for `observed`. says: the observation as a sentence."""

    at: str
    words: str
    says: str


def is_silent(link: Link) -> bool:
    return bool(link.knocks) and "dropped" in link.ports.values()


def of(links: Iterable[Link], cluster: Cluster) -> DropSide | None:
    """Return the side that drops the packets of all these links; None if it is unknown or differs."""
    found = {side(link, cluster) for link in links}
    return found.pop() if len(found) == 1 else None


def side(link: Link, cluster: Cluster) -> DropSide | None:
    target, origin = ((cluster.node(name).served or {}).get("drops") for name in (link.target, link.origin))
    if not is_silent(link) or not target or not origin or ":" in cluster.node(link.target).address:
        return None  # the nodes count IPv4 packets
    # All nodes with a silent link to the target have called it.
    called = sum(one.knocks for one in cluster.links if one.target == link.target and is_silent(one))
    back = any(one.target == link.origin and is_silent(one) for one in cluster.links)
    few = FEW * link.knocks
    if link.left < few:
        return by_filter(link.origin, "does not let the packets leave") if link.neighbour == "known" else None
    if target["filtered"] >= MOST * called:
        return by_filter(link.target, "drops the packets on arrival")
    if target["half_open"] >= MOST * called:
        if origin["filtered"] >= MOST * link.knocks and not back:
            return by_filter(link.origin, "drops the replies")
        says = f"the packets arrive at {link.target}, but its replies are lost"
        return DropSide("", f"replies of {link.target}", says)
    if link.left >= MOST * link.knocks and target["filtered"] < few and target["half_open"] < few:
        # The kernel soon forgets a connection whose reply its own filter drops, so that this is not told apart.
        says = f"the packets leave {link.origin}, and {link.target} does not drop them on arrival"
        return DropSide("", f"outgoing rules of {link.target}, or the network in between", says)
    return None


def by_filter(node: str, does: str) -> DropSide:
    return DropSide(node, f"packet filter of {node}", f"the packet filter of {node} {does}")
