"""Ranks compared: who differs from most of those that should be the same, or that have the same model of GPU."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.commands import playbook
from ..verdict.words import few, plural
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

    from ..verdict.check import Check
    from ..verdict.finding import Finding
    from .reports import Reports

HEALTH = playbook("site.yml", tags="health")
NOT_FINITE = 1e30  # what the payload says for it
MAJORITY = 3  # of two that differ, nobody knows which one is as it should be
MAD = 1.4826  # of a normal distribution, the standard deviation by the median of the distances from the median


class Apart(NamedTuple):
    """How far two sets of numbers are from each other where that is worst. excess: as a part of the tolerance."""

    parameter: str
    excess: float
    absolute: float

    def __str__(self) -> str:
        if self.absolute >= NOT_FINITE:
            return f"{self.parameter} is no finite number"
        return f"{self.parameter} differs by {self.absolute:.2g}, {self.excess:.2g} times the tolerance"


def apart(value: Any) -> Apart | None:
    """As a rank says it; None where that is something else."""
    said = value if isinstance(value, dict) else {}
    excess, absolute = number(said.get("excess")), number(said.get("absolute"))
    if excess is None or absolute is None or math.isnan(excess):
        return None
    return Apart(str(said.get("parameter") or "something")[:60], excess, absolute)


def words_of(by_rank: Mapping[int, Mapping[str, Any]], key: str) -> dict[int, str]:
    """What the ranks say under this key, of those that say a word there."""
    return {rank: said[key] for rank, said in by_rank.items() if isinstance(said.get(key), str) and said[key]}


def by_value(values: Mapping[int, Hashable]) -> list[list[int]]:
    """The ranks that agree, the most of them first."""
    groups: dict[Hashable, list[int]] = {}
    for rank in sorted(values):
        groups.setdefault(values[rank], []).append(rank)
    return sorted(groups.values(), key=len, reverse=True)


def disagree(check: Check, reports: Reports, values: Mapping[int, Hashable], what: str) -> Iterator[Finding]:
    """A failure for each node with a rank that has another value than most; nothing where all have the same."""
    groups = by_value(values)
    if len(groups) < 2:
        return
    if len(groups[0]) == len(groups[1]):
        sides = " against ".join(few([str(rank) for rank in group]) for group in groups[:4])
        text = f"the ranks have different {what}, and no majority says which are right: {sides}"
        for node in by_node(reports, values):
            yield check.fail(node, text)
        return
    odd = [rank for group in groups[1:] for rank in group]
    for node, ranks in by_node(reports, odd).items():
        most = plural(len(groups[0]), "rank")
        yield check.fail(node, f"{who(reports, ranks)} {has(ranks)} other {what} than the {most} that agree")


def by_node(reports: Reports, ranks: Iterable[int]) -> dict[str, list[int]]:
    nodes: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        nodes.setdefault(reports.places[rank].node, []).append(rank)
    return nodes


def who(reports: Reports, ranks: Iterable[int]) -> str:
    return few([reports.named(rank) for rank in ranks])


def has(ranks: Collection[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def settled(check: Check, reports: Reports, known: Collection[int], text: str) -> Finding:
    """Nothing is wrong with what is known; whether that is of all ranks is another question."""
    if not known:
        return check.unknown(reports.head, f"no rank reported what {check.id} reads", fix="Read the ranks' logs")
    return reports.good(check, text, whole=set(known) == set(reports.places))


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
