"""Evaluate the acceptance test: run the checks of every subject, collect the measured values, and write a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import collect
from ..verdict.finding import add_up, as_lines, findings_in
from . import (
    bandwidth,
    baseline,
    checkpoint,
    collectives,
    device,
    equality,
    precision,
    sampling,
    scaling,
    soak,
    stages,
    stragglers,
    train,
    transport,
    world,
)
from .reports import number
from .summary import summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..verdict.check import CheckResults
    from ..verdict.finding import Verdict
    from .reports import Reports

# In the order of the payload's stages
SUBJECTS = (
    stages,
    world,
    device,
    collectives,
    bandwidth,
    transport,
    equality,
    sampling,
    checkpoint,
    precision,
    stragglers,
    scaling,
    train,
    soak,
)
MEASURED = (device, collectives, bandwidth, transport, stragglers, scaling, soak)


def judge(reports: Reports) -> CheckResults:
    return collect(said for subject in SUBJECTS for said in subject.judge(reports))


def measured(reports: Reports, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of smoke.json: the measurements of each rank and of the whole launch."""
    trained = reports.facts(train.STAGE)
    rates = [rate for said in trained.values() if (rate := number(said.get("samples_per_second"))) is not None]
    return {
        "schema": 2,
        "launch_id": reports.plan.launch_id,
        "mode": reports.mode,
        "backend": reports.plan.backend,
        "world_size": reports.plan.world_size,
        "samples_per_second": round(sum(rates), 1) if rates else None,
        "loss_first": train.mean(reports, "loss_first"),
        "loss_last": train.mean(reports, "loss_last"),
        "checkpoint": checkpoint.measured(reports),
        "steps": [
            {key: event.get(key) for key in ("step", "loss", "samples_per_second")}
            for event in events
            if event.get("event") == "step"
        ],
        "ranks": [rank_of(reports, rank) for rank in sorted(reports.places)],
        **{subject.STAGE: subject.measured(reports) for subject in MEASURED if reports.tried(subject.STAGE)},
    }


def rank_of(reports: Reports, rank: int) -> dict[str, Any]:
    """Return a rank's place, machine and device, and the rank's report of every stage."""
    place, said = reports.places[rank], reports.facts(world.STAGE).get(rank, {})
    return {
        "rank": rank,
        **place._asdict(),
        **{key: said[key] for key in ("hostname", "machine", "device", "gpu_uuid") if key in said},
        "stages": {
            stage: {"status": report.status, "why": report.why, "seconds": report.seconds, "facts": report.facts}
            for stage, by_rank in reports.stages.items()
            if (report := by_rank.get(rank))
        },
    }


class Conclusion(NamedTuple):
    """The result of an acceptance test. book: the new content of acceptance.json, None if it is unchanged."""

    verdict: Verdict
    measured: dict[str, Any]
    book: Mapping[str, Any] | None


def concluded(
    reports: Reports,
    launch: dict[str, Any],
    events: list[dict[str, Any]],
    past: baseline.AcceptanceHistory | None = None,
) -> Conclusion:
    """Return the launch's verdict with the findings of the test, and the measurements. If `past` is given, they are
    compared with the accepted state."""
    launched = findings_in(launch)
    judged = judge(reports)
    facts = measured(reports, events)
    bad = [finding for finding in (*judged.findings, *launched) if finding.status not in ("pass", "skipped")]
    settled = baseline.settle(reports, facts, past, as_lines(bad)) if past else baseline.Settled()
    checks = [*judged.findings, *settled.findings]
    text = summary(reports, facts, launched, checks, settled.note)
    whole = add_up([*launched, *checks], text, judged.skipped)
    return Conclusion(whole, {**facts, "accepted": settled.shown}, settled.book)
