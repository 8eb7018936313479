"""Find the nodes that explain bad links.

If a row or column of the link matrix is bad, one node is named instead of many pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Pair = tuple[str, str]
MOST = 0.6  # share of bad links in one direction from which on the node is blamed, not a single link


@dataclass(frozen=True)
class BlameShare:
    """Some of the bad links, and the node that explains them.

    way: "to", "from" or "both" if the node's links in this direction are bad; "pair" if neither end can be blamed, in
    which case `node` is the target of the link.
    """

    node: str
    way: str
    links: tuple[Pair, ...]

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(one for link in self.links for one in link if one != self.node))

    @property
    def peer(self) -> str | None:
        """The node at the other end, if all links have the same one."""
        return self.peers[0] if len(self.peers) == 1 else None


class Rows:
    """Links by origin and by target. take() removes links that are explained."""

    def __init__(self, nodes: Sequence[str], links: Collection[Pair]) -> None:
        self.order = {node: number for number, node in enumerate(nodes)}
        self.by = {(node, way): set[Pair]() for way in ("to", "from") for node in nodes}
        for link in links:
            self.by[link[1], "to"].add(link)
            self.by[link[0], "from"].add(link)

    def of(self, node: str, *ways: str) -> list[Pair]:
        links = {link for way in ways for link in self.by[node, way]}
        return sorted(links, key=lambda link: (self.order[link[0]], self.order[link[1]]))

    def take(self, node: str, *ways: str) -> tuple[Pair, ...]:
        taken = self.of(node, *ways)
        for link in taken:
            self.by[link[1], "to"].discard(link)
            self.by[link[0], "from"].discard(link)
        return tuple(taken)

    def are_bad(self, node: str, way: str, tested: Rows) -> bool:
        return len(self.by[node, way]) >= max(2, MOST * len(tested.by[node, way]))


def blame(nodes: Sequence[str], bad: Collection[Pair], tested: Collection[Pair]) -> list[BlameShare]:
    """Assign the bad links to nodes, in inventory order. Nodes whose links are all bad come first."""
    left, every = Rows(nodes, bad), Rows(nodes, tested)
    found: list[BlameShare] = []
    if len({node for link in tested for node in link}) > 2:
        whole = [node for node in nodes if all(left.are_bad(node, way, every) for way in ("to", "from"))]
        # If most nodes are cut off from each other, no single node is to blame.
        odd = whole if 2 * len(whole) < len(nodes) else []
        found += [BlameShare(node, "both", left.take(node, "to", "from")) for node in odd]
        while suspects := [suspect for suspect in left.by if left.are_bad(*suspect, every)]:
            # If two nodes explain the same link, use the one that explains more links.
            node, way = max(suspects, key=lambda suspect: len(left.by[suspect]))
            found.append(BlameShare(node, way, left.take(node, way)))
    for node in nodes:
        mine = left.take(node, "to")
        if mine:
            found.append(BlameShare(node, "pair", mine))
    return found


def couples(nodes: Sequence[str], shares: list[BlameShare]) -> list[BlameShare]:
    """Merge shares of differences that have no direction, so that each pair of nodes is reported once."""
    found: list[BlameShare] = []
    reported: set[frozenset[str]] = set()
    for share in shares:
        links = tuple(link for link in share.links if frozenset(link) not in reported)
        reported |= {frozenset(link) for link in links}
        if not links:
            continue
        if share.way == "pair":
            for link in links:
                first, second = sorted(link, key=nodes.index)
                found.append(BlameShare(first, "pair", ((first, second),)))
        else:
            found.append(BlameShare(share.node, "both", links))
    return found
