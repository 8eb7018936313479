"""Schedule throughput measurements so that no node takes part in two at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ALL_PAIRS = 16  # maximum number of nodes for measuring every pair
SAMPLED_ROUNDS = 8  # peers per node in larger clusters


def rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Return rounds of disjoint pairs in which every node meets every other node once (circle method)."""
    circle: list[str | None] = [*nodes] if len(nodes) % 2 == 0 else [*nodes, None]
    half = len(circle) // 2
    found = []
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(one, other) for one, other in facing if one is not None and other is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def sample(every: list[list[tuple[str, str]]], wanted: int) -> list[list[tuple[str, str]]]:
    """Return the wanted number of rounds, spread evenly over all rounds."""
    if len(every) <= wanted:
        return every
    return [every[number * len(every) // wanted] for number in range(wanted)]


def calls(nodes: Sequence[str], usable: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the nodes that each node connects to, in order. usable: links that accept connections, as (from, to)."""
    chosen = rounds(nodes)
    if len(nodes) > ALL_PAIRS:
        chosen = sample(chosen, SAMPLED_ROUNDS)
    found: dict[str, list[str]] = {node: [] for node in nodes}
    for pair in (pair for entries in chosen for pair in entries):
        ways = [way for way in (pair, pair[::-1]) if way in usable]
        if ways:
            # Prefer the caller with fewer calls.
            caller, called = min(ways, key=lambda way: len(found[way[0]]))
            found[caller].append(called)
    return {node: peers for node, peers in found.items() if peers}


def again(pairs: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the nodes that each node connects to, to measure these pairs again."""
    found: dict[str, list[str]] = {}
    for caller, called in pairs:
        found.setdefault(caller, []).append(called)
    return found
