"""Which nodes meet, and what is usual between them. No torch."""

from __future__ import annotations

import statistics

MOST_ROUNDS = 8  # in which every node meets another one: as the trial of the rails does


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Everybody meets everybody once, and nobody two at a time (the circle method); some rounds of many nodes."""
    places = [*range(count), *([-1] if count % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        halves = zip(places[: len(places) // 2], reversed(places[len(places) // 2 :]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in halves if -1 not in (a, b)])
        places = [places[0], places[-1], *places[1:-1]]
    step = max(1, len(found) / MOST_ROUNDS)
    return [found[int(index * step)] for index in range(min(len(found), MOST_ROUNDS))]


def usual_of(rate: dict[tuple[int, int], float]) -> float:
    """The median node's best pair: one slow node of three spoils two pairs of three."""
    best: dict[int, float] = {}
    for pair, found in rate.items():
        for end in pair:
            best[end] = max(best.get(end, 0.0), found)
    return statistics.median(best.values()) if best else 0.0
