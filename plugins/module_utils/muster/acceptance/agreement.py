"""Compare ranks with each other, to find ranks that differ from most ranks or from ranks with the same GPU model."""

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
NOT_FINITE = 1e30  # the payload reports this for NaN and infinity, which JSON does not have
MAJORITY = 3  # with two different values, the correct one is unknown
MAD = 1.4826  # standard deviation of a normal distribution / median absolute deviation


class Apart(NamedTuple):
    """The largest difference between two sets of numbers. excess: the difference as a multiple of the tolerance."""

    parameter: str
    excess: float
    absolute: float

    def __str__(self) -> str:
        if self.absolute >= NOT_FINITE:
            return f"{self.parameter} is not finite"
        return f"{self.parameter} differs by {self.absolute:.2g}, {self.excess:.2g} times the tolerance"


def apart(value: Any) -> Apart | None:
    """Return the difference that a rank reported; None if the reported value is invalid."""
    said = value if isinstance(value, dict) else {}
    excess, absolute = number(said.get("excess")), number(said.get("absolute"))
    if excess is None or absolute is None or math.isnan(excess):
        return None
    return Apart(str(said.get("parameter") or "something")[:60], excess, absolute)


def words_of(by_rank: Mapping[int, Mapping[str, Any]], key: str) -> dict[int, str]:
    """Return the non-empty strings that the ranks reported for this key."""
    return {rank: said[key] for rank, said in by_rank.items() if isinstance(said.get(key), str) and said[key]}


def by_value(values: Mapping[int, Hashable]) -> list[list[int]]:
    """Group the ranks by value, with the largest group first."""
    groups: dict[Hashable, list[int]] = {}
    for rank in sorted(values):
        groups.setdefault(values[rank], []).append(rank)
    return sorted(groups.values(), key=len, reverse=True)


def disagree(check: Check, reports: Reports, values: Mapping[int, Hashable], what: str) -> Iterator[Finding]:
    """Yield a failure for each node with a rank whose value differs from the value of the largest group."""
    groups = by_value(values)
    if len(groups) < 2:
        return
    if len(groups[0]) == len(groups[1]):
        sides = " against ".join(few([str(rank) for rank in group]) for group in groups[:4])
        text = f"{what} differ between the ranks, and no value has a majority: {sides}"
        for node in by_node(reports, values):
            yield check.fail(node, text)
        return
    odd = [rank for group in groups[1:] for rank in group]
    for node, ranks in by_node(reports, odd).items():
        most = plural(len(groups[0]), "rank")
        yield check.fail(node, f"{who(reports, ranks)}: {what} differ from those of the {most} that agree")


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
    """Return a pass if every rank reported, else unknown. The caller has checked that no rank failed the check."""
    if not known:
        return check.unknown(reports.head, f"no rank reported the values for {check.id}", fix="Check the ranks' logs")
    return reports.good(check, text, whole=set(known) == set(reports.places))


def by_model(values: Mapping[int, float], models: Mapping[int, str]) -> list[dict[int, float]]:
    """Group the ranks' values by GPU model."""
    groups: dict[str, dict[int, float]] = {}
    for rank, value in values.items():
        groups.setdefault(models.get(rank, ""), {})[rank] = value
    return list(groups.values())


def usual(values: Iterable[float]) -> float | None:
    """Return the median; None if there are fewer than MAJORITY values."""
    told = list(values)
    return median(told) if len(told) >= MAJORITY else None


def outside(value: float, values: Iterable[float], times: float, deviations: float = 3.0) -> bool:
    """Return whether the value exceeds the median both by this factor and by this number of standard deviations."""
    told = list(values)
    middle = median(told)
    scatter = MAD * median(abs(one - middle) for one in told)
    return value > times * middle and value > middle + deviations * scatter
