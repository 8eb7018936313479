"""Who hands content to whom: who has it gives it on, and so one more round serves several times as many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

AT_ONCE = 4  # nodes that one node serves in a round: each gets a share of what its adapter can send


def seed(missing: Mapping[str, int]) -> str:
    """Return the node that the controller sends to: the one that lacks least; the first of those. missing: bytes."""
    return min(missing, key=lambda name: missing[name])


def next_round(
    having: Sequence[str], lacking: Sequence[str], tried: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return the nodes that each node serves now. tried: those that a node has asked in vain, which are not asked
    again."""
    served: dict[str, list[str]] = {}
    for name in lacking:
        free = [
            source for source in having if len(served.get(source, ())) < AT_ONCE and source not in tried.get(name, ())
        ]
        if free:
            least = min(free, key=lambda source: len(served.get(source, ())))
            served.setdefault(least, []).append(name)
    return served
