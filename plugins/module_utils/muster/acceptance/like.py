"""Ranks compared with others of the same model: of unknown models, and of faults that no data sheet tells."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAJORITY = 3  # of two that differ, nobody knows which one is as it should be
MAD = 1.4826  # of a normal distribution, the standard deviation by the median of the distances from the median


def by_model(values: Mapping[int, float], models: Mapping[int, str]) -> list[dict[int, float]]:
    """The values of the ranks, those of each model apart."""
    groups: dict[str, dict[int, float]] = {}
    for rank, value in values.items():
        groups.setdefault(models.get(rank, ""), {})[rank] = value
    return list(groups.values())


def usual(values: Iterable[float]) -> float | None:
    """The median where there is a majority."""
    told = list(values)
    return median(told) if len(told) >= MAJORITY else None


def outside(value: float, values: Iterable[float], times: float, deviations: float = 3.0) -> bool:
    """Whether it is more than so many times the median, and farther above it than the others scatter."""
    told = list(values)
    middle = median(told)
    scatter = MAD * median(abs(one - middle) for one in told)
    return value > times * middle and value > middle + deviations * scatter
