"""Summarize the result of an acceptance test in one sentence: scope, main figures and problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..launch.outcome import LEFTOVER
from ..verdict.finding import as_lines
from ..verdict.words import plural
from . import stages, train
from .metrics import metrics, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding
    from .reports import Reports

TOLD = 3  # findings in the sentence; the report has all of them
COLLECTIVE = "all_reduce"  # the collective that DDP waits for


def summary(
    reports: Reports, smoke: Mapping[str, Any], launched: Sequence[Finding], checks: Sequence[Finding], note: str = ""
) -> str:
    """Return the summary. launched: findings of the launch. checks: findings of the test. note: text that is added to
    the summary of a successful test, which leaves warnings to the findings."""
    ended = [finding for finding in launched if finding.status in ("fail", "unknown")]
    if any(finding.id != LEFTOVER.id for finding in ended):
        return after_failure(ended, checks)
    failed = [finding for finding in checks if finding.status == "fail"]
    unknown = [finding for finding in checks if finding.status == "unknown"]
    if failed or unknown:
        what = "the result is wrong" if failed else "the result could not be checked"
        besides = [finding for finding in (*launched, *checks) if finding.status == "warn"]
        return f"the launch finished, but {what}. {_first([*(failed or unknown), *ended, *besides])}"
    parts = [good(reports, smoke, checks), note, _first(ended)]
    return "; ".join(part for part in parts if part)


def after_failure(ended: Sequence[Finding], checks: Sequence[Finding]) -> str:
    """Return how the launch failed, and the findings of the stages that were finished by then.

    Missing reports and the unknown values that result from them are left out, because they are consequences of the
    failure.
    """
    found = [one for one in checks if one.status in ("fail", "warn") and one.id != stages.REPORT.id]
    found.sort(key=lambda one: one.status != "fail")
    whole = _first(ended)
    return f"{whole}; findings before the failure: {_first(found)}" if found else whole


def good(reports: Reports, smoke: Mapping[str, Any], checks: Sequence[Finding]) -> str:
    """Return the summary of a successful test. It covers the stages that ran."""
    plan = reports.plan
    trained = " trained together" if reports.facts(train.STAGE) else ""
    who = f"{plural(plan.world_size, 'rank')} on {plural(len(plan.nodes), 'node')}{trained} ({plan.backend})"
    done = plural(len({finding.id for finding in checks if finding.status in ("pass", "warn")}), "check")
    seconds = [
        max((report.seconds for report in by_rank.values() if report.seconds is not None), default=0.0)
        for by_rank in reports.stages.values()
    ]
    made = f"{done} in {plural(len(reports.stages), 'stage')} and {sum(seconds):.0f} s ({reports.mode})"
    return f"{who}: {', '.join([*numbers(smoke), made])}"


def numbers(smoke: Mapping[str, Any]) -> list[str]:
    """Return the samples per second, and the bandwidth of the slowest level that was measured or, if there is none, the
    efficiency."""
    measured = metrics(smoke)
    found = []
    if rate := measured.get("samples all"):
        found.append(told("samples", rate.value))
    levels = (measured.get(f"busbw {COLLECTIVE} {level}") for level in ("across", "all"))
    if busbw := next((one for one in levels if one), None):
        found.append(f"{busbw.where.replace('_', '-')} {told('busbw', busbw.value)}")
    elif efficiency := measured.get("efficiency all"):
        found.append(f"{100 * efficiency.value:.0f} % of linear scaling")
    return found


def _first(findings: Sequence[Finding]) -> str:
    """Return the first TOLD findings, each with its node and fix, and the number of the other findings."""
    lines = as_lines(findings)
    more = [f"and {len(lines) - TOLD} more"] if len(lines) > TOLD else []
    return "; ".join([*lines[:TOLD], *more])
