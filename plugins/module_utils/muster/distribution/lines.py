"""Determine the transfer order of a distribution to many nodes: chains in which each node receives from its
predecessor.

A node forwards each piece as soon as it arrives. A chain of any length therefore takes little longer than one copy, and
no node sends more than one copy. If a source fails, the node asks a node further up the chain, which rules out circular
waits. A slow node is skipped (muster_node/distribution/fetching.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEAREST = 6  # nodes of its line that a node may ask, nearest first
HOLDERS = 3  # likewise, of nodes that were complete at the start


def seed(missing: Mapping[str, int]) -> str:
    """Return the node that receives the controller's copy: the one with the fewest missing bytes.

    missing: missing bytes by node.
    """
    return min(missing, key=lambda name: missing[name])


def lines(having: Sequence[str], lacking: Sequence[str]) -> dict[str, list[str]]:
    """Return the sources of each incomplete node in order of preference.

    Each chain starts at a node that has all content.
    """
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
