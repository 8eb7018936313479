"""Who takes from whom when content goes to many nodes: in lines, each node from the one before it.

A node gives each piece on as it comes, so that a line of any length takes little longer than one copy, and nobody
sends more than one. Whoever is asked where that one fails is farther up in the line: there are no circles, in which
nodes would wait for each other. A slow node is skipped (muster_node/distribution/fetching.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEAREST = 6  # nodes of its line that a node may ask, the next one first
HOLDERS = 3  # and of those that had all of it at the beginning


def seed(missing: Mapping[str, int]) -> str:
    """Return the node that the controller sends to: the one that lacks least; the first of those. missing: bytes."""
    return min(missing, key=lambda name: missing[name])


def lines(having: Sequence[str], lacking: Sequence[str]) -> dict[str, list[str]]:
    """Return whom each node that lacks something asks, the first first: one line behind each node that has it."""
    if not having:
        return {}
    holders = list(having[: len(lacking)])
    found: dict[str, list[str]] = {}
    begin = 0
    for place, holder in enumerate(holders):
        end = begin + len(lacking) // len(holders) + (place < len(lacking) % len(holders))
        others = [name for name in holders if name != holder][: HOLDERS - 1]
        for at in range(begin, end):
            nearest = list(reversed(lacking[max(begin, at - NEAREST) : at]))
            found[lacking[at]] = [*nearest, holder, *others]
        begin = end
    return found
