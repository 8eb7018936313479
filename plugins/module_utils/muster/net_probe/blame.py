"""Which node stands behind bad links: the one whose row or column of the matrix is bad is named, not the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Pair = tuple[str, str]
MOST = 0.6  # of its links in one direction that are bad: then it is the node, and no single link


@dataclass(frozen=True)
class BlameShare:
    """Some of the bad links, and the node behind them.

    way: to, from or both, where the node's links in this direction are bad; pair, where neither end can be blamed, and
    `node` is only the one that was called.
    """

    node: str
    way: str
    links: tuple[Pair, ...]

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(one for link in self.links for one in link if one != self.node))

    @property
    def peer(self) -> str | None:
        """The other end, where there is only one."""
        return self.peers[0] if len(self.peers) == 1 else None


class Rows:
    """Links by the node that they begin or end at, from which those are taken that have been explained."""

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
    """Divide the bad links among nodes; in the order of the inventory, whole nodes first."""
    left, every = Rows(nodes, bad), Rows(nodes, tested)
    found: list[BlameShare] = []
    if len({node for link in tested for node in link}) > 2:
        whole = [node for node in nodes if all(left.are_bad(node, way, every) for way in ("to", "from"))]
        # When most nodes are cut off from each other, none of them is the odd one.
        odd = whole if 2 * len(whole) < len(nodes) else []
        found += [BlameShare(node, "both", left.take(node, "to", "from")) for node in odd]
        while suspects := [suspect for suspect in left.by if left.are_bad(*suspect, every)]:
            # Where two would explain the same link, the one that explains more.
            node, way = max(suspects, key=lambda suspect: len(left.by[suspect]))
            found.append(BlameShare(node, way, left.take(node, way)))
    for node in nodes:
        mine = left.take(node, "to")
        if mine:
            found.append(BlameShare(node, "pair", mine))
    return found


def couples(nodes: Sequence[str], shares: list[BlameShare]) -> list[BlameShare]:
    """Shares of something that has no direction: two nodes that differ from each other are reported once."""
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
