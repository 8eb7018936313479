"""Which node stands behind bad links: the one whose row or column of the matrix is bad is named, not the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Pair = tuple[str, str]
MOST = 0.6  # of its links in one direction that are bad: then it is the node, and no single link


@dataclass(frozen=True)
class Share:
    """Some of the bad links, and the node behind them.

    way: to, from or both, where the node's links in this direction are bad; pair, where nobody can be told from the
    other end, and `node` is only the end that was called.
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


def blame(nodes: Sequence[str], bad: Collection[Pair], tested: Collection[Pair]) -> list[Share]:
    """Divide the bad links among nodes; in the order of the inventory, whole nodes first."""
    left = [(one, other) for one in nodes for other in nodes if (one, other) in bad]
    found: list[Share] = []
    if len({node for link in tested for node in link}) > 2:
        whole = [node for node in nodes if all(is_bad(node, way, left, tested) for way in ("to", "from"))]
        # When most nodes are cut off from each other, none of them is the odd one.
        for node in whole if 2 * len(whole) < len(nodes) else []:
            mine = [link for link in left if node in link]
            left = [link for link in left if node not in link]
            found.append(Share(node, "both", tuple(mine)))
        while suspects := [(node, way) for way in ("to", "from") for node in nodes if is_bad(node, way, left, tested)]:
            # Where two would explain the same link, the one that explains more.
            node, way = max(suspects, key=lambda suspect: len(of(suspect[0], suspect[1], left)))
            mine = of(node, way, left)
            left = [link for link in left if link not in mine]
            found.append(Share(node, way, tuple(mine)))
    for node in nodes:
        mine = of(node, "to", left)
        if mine:
            found.append(Share(node, "pair", tuple(mine)))
    return found


def of(node: str, way: str, links: Collection[Pair]) -> list[Pair]:
    end = 1 if way == "to" else 0
    return [link for link in links if link[end] == node]


def is_bad(node: str, way: str, bad: Collection[Pair], tested: Collection[Pair]) -> bool:
    mine, every = of(node, way, bad), of(node, way, tested)
    return len(mine) >= 2 and len(mine) >= MOST * len(every)


def couples(nodes: Sequence[str], shares: list[Share]) -> list[Share]:
    """Shares of something that has no direction: two nodes that differ from each other are told once."""
    found: list[Share] = []
    told: set[frozenset[str]] = set()
    for share in shares:
        links = tuple(link for link in share.links if frozenset(link) not in told)
        told |= {frozenset(link) for link in links}
        if not links:
            continue
        if share.way == "pair":
            for link in links:
                first, second = sorted(link, key=nodes.index)
                found.append(Share(first, "pair", ((first, second),)))
        else:
            found.append(Share(share.node, "both", links))
    return found
