"""What the ranks of an acceptance test reported, by stage and rank: foreign input."""

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
    """Where a rank runs, as the plan has it."""

    node: str
    node_rank: int
    local_rank: int


@dataclass(frozen=True)
class Report:
    """What one rank says of one stage. status: one of STATUSES. why: where it is not ok. seconds: None if not told.

    facts: what it measured there; whatever a rank says, so that each reader looks before it takes a number for one.
    """

    status: str
    why: str = ""
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """What the judges compare with, beside the plan. loss_ratio, busbw_floor, scaling_floor: options of the role.

    rails: what each trial of an RDMA adapter got, in Gbit/s, in the newest rails.json. gpu_rates: gpu_rates.yml of the
    role.
    """

    loss_ratio: float = 0.9
    busbw_floor: float = 0.0
    scaling_floor: float = 0.0
    rails: tuple[float, ...] = ()
    gpu_rates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reports:
    """plan: the launch's. mode: of the test. places: by rank. stages: by name, in the order in which they were tried,
    the reports by rank. wanted: the stages that were to be tried; a rank that lacks one is in judge.py's findings.
    events: all that was said, for what is no report of a stage.
    """

    plan: LaunchPlan
    mode: str
    places: Mapping[int, RankPlace]
    stages: Mapping[str, Mapping[int, Report]]
    wanted: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    events: tuple[Mapping[str, Any], ...] = ()

    @property
    def head(self) -> str:
        """The node that findings about all of them are filed under."""
        return self.plan.head.node

    def tried(self, stage: str) -> bool:
        return stage in self.stages or stage in self.wanted

    def facts(self, stage: str) -> dict[int, Mapping[str, Any]]:
        """By rank, in order: the facts of those that came to the stage's end."""
        reports = self.stages.get(stage, {})
        return {rank: reports[rank].facts for rank in sorted(reports) if reports[rank].status in ("ok", "wrong")}

    def whole(self, stage: str, key: str) -> bool:
        """Whether every planned rank reported this fact: only then is anything said of all of them."""
        facts = self.facts(stage)
        return all(key in facts.get(rank, {}) for rank in self.places)

    def named(self, rank: int) -> str:
        """A rank as people find it: `rank 3 (node2, local rank 1)`."""
        place = self.places[rank]
        return f"rank {rank} ({place.node}, local rank {place.local_rank})"

    def good(self, check: Check, text: str, *, whole: bool) -> Finding:
        """Nothing is wrong with what was reported; whether that is enough to say so is another question."""
        if whole:
            return check.passed(self.head, text)
        return check.unknown(self.head, f"not known of all ranks. Of those that reported: {text}", fix="")


def places_of(plan: LaunchPlan) -> dict[int, RankPlace]:
    """{rank: where it runs} as the plan has it."""
    return {
        rank: RankPlace(entry.node, entry.node_rank, local)
        for entry in plan.nodes
        for local, rank in enumerate(entry.ranks)
    }


def read(plan: LaunchPlan, events: list[dict[str, Any]], mode: str, wanted: tuple[str, ...], bounds: Bounds) -> Reports:
    """The reports in the events, by the rank whose log they came from (not by what they claim)."""
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
    """None where it is no report."""
    status, facts = event.get("status"), event.get("facts")
    if status not in STATUSES or not isinstance(facts, dict):
        return None
    return Report(status, str(event.get("why") or ""), number(event.get("seconds")), facts)


def number(value: Any) -> float | None:
    """A number as such, not what only looks like one; NaN and infinity are numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if not isinstance(value, int) or abs(value) < 2**63 else None


def finite(value: Any) -> float | None:
    """A number that can be compared and counted."""
    told = number(value)
    return told if told is not None and math.isfinite(told) else None
