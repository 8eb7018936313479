"""Read the reports of the ranks of an acceptance test, by stage and rank. The reports are untrusted input."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..launch.planned import LaunchPlan
    from ..verdict.check import Check
    from ..verdict.finding import Finding

STATUSES = ("ok", "wrong", "skipped", "failed", "timeout", "lost")


class RankPlace(NamedTuple):
    """The place where a rank runs according to the plan."""

    node: str
    node_rank: int
    local_rank: int


@dataclass(frozen=True)
class Report:
    """One rank's report of one stage. status: one of STATUSES. why: the reason if the status is not ok. seconds: None
    if not reported.

    facts: measurements. They can have any type and value, so code that uses them must check them.
    """

    status: str
    why: str = ""
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """Bounds for the evaluation, in addition to the plan. loss_ratio, busbw_floor, scaling_floor: options of the role.

    rails: the measured rates of the RDMA adapters in the newest rails.json, in Gbit/s. gpu_rates: gpu_rates.yml of the
    role.
    """

    loss_ratio: float = 0.9
    busbw_floor: float = 0.0
    scaling_floor: float = 0.0
    rails: tuple[float, ...] = ()
    gpu_rates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reports:
    """All reports of an acceptance test. plan: the plan of the launch. mode: the mode of the test. places: by rank.
    stages: reports by stage name, in the order of the stages, and by rank. wanted: the requested stages; stages.py
    yields findings for ranks that did not report one of them. events: all events, including those that are not reports
    of a stage."""

    plan: LaunchPlan
    mode: str
    places: Mapping[int, RankPlace]
    stages: Mapping[str, Mapping[int, Report]]
    wanted: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    events: tuple[Mapping[str, Any], ...] = ()

    @property
    def head(self) -> str:
        """The node to which findings about all nodes are attributed."""
        return self.plan.head.node

    def tried(self, stage: str) -> bool:
        return stage in self.stages or stage in self.wanted

    def facts(self, stage: str) -> dict[int, Mapping[str, Any]]:
        """Return the facts of the ranks that finished the stage, in the order of ranks."""
        reports = self.stages.get(stage, {})
        return {rank: reports[rank].facts for rank in sorted(reports) if reports[rank].status in ("ok", "wrong")}

    def whole(self, stage: str, key: str) -> bool:
        """Return whether every planned rank reported this fact. Otherwise, a finding must not make a statement about
        all ranks."""
        facts = self.facts(stage)
        return all(key in facts.get(rank, {}) for rank in self.places)

    def named(self, rank: int) -> str:
        """Return the rank's name for messages: `rank 3 (node2, local rank 1)`."""
        place = self.places[rank]
        return f"rank {rank} ({place.node}, local rank {place.local_rank})"

    def good(self, check: Check, text: str, *, whole: bool) -> Finding:
        """Return a pass if the reports are complete (whole), else unknown. The caller has checked that no report
        contains a failure."""
        if whole:
            return check.passed(self.head, text)
        return check.unknown(self.head, f"some ranks did not report. Result of the other ranks: {text}", fix="")


def places_of(plan: LaunchPlan) -> dict[int, RankPlace]:
    """Return the place of each rank according to the plan."""
    return {
        rank: RankPlace(entry.node, entry.node_rank, local)
        for entry in plan.nodes
        for local, rank in enumerate(entry.ranks)
    }


def read(plan: LaunchPlan, events: list[dict[str, Any]], mode: str, wanted: tuple[str, ...], bounds: Bounds) -> Reports:
    """Return the reports in the events. The rank of a report is determined by the log that contains the event, not by
    the rank that the event names."""
    places = places_of(plan)
    stages: dict[str, dict[int, Report]] = {}
    for event in events:
        if event.get("event") != "stage" or event["from_rank"] not in places:
            continue
        stage, report = str(event.get("stage")), report_of(event)
        if stage in wanted and report is not None:
            stages.setdefault(stage, {})[event["from_rank"]] = report
    ordered = {stage: stages[stage] for stage in wanted if stage in stages}
    return Reports(plan, mode, places, ordered, wanted, bounds, tuple(events))


def report_of(event: Mapping[str, Any]) -> Report | None:
    """Return the report in an event; None if the event contains none."""
    status, facts = event.get("status"), event.get("facts")
    if status not in STATUSES or not isinstance(facts, dict):
        return None
    return Report(status, str(event.get("why") or ""), number(event.get("seconds")), facts)


def number(value: Any) -> float | None:
    """Return a JSON number as float; None for other types, including bool. NaN and infinity count as numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if not isinstance(value, int) or abs(value) < 2**63 else None


def finite(value: Any) -> float | None:
    """Return a number; None if it is not finite."""
    told = number(value)
    return told if told is not None and math.isfinite(told) else None
