"""One sentence of what came of an acceptance test: what was tried, the number that matters, where it is bad."""

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

TOLD = 3  # findings that the sentence tells; the page has all of them
COLLECTIVE = "all_reduce"  # what DDP waits for


def summary(
    reports: Reports, smoke: Mapping[str, Any], launched: Sequence[Finding], checks: Sequence[Finding], note: str = ""
) -> str:
    """launched: what the launch found. checks: what the test found. note: what else is to be said of a good one."""
    ended = [finding for finding in launched if finding.status in ("fail", "unknown")]
    if any(finding.id != LEFTOVER.id for finding in ended):
        return after_failure(ended, checks)
    failed = [finding for finding in checks if finding.status == "fail"]
    unknown = [finding for finding in checks if finding.status == "unknown"]
    besides = [finding for finding in launched if finding.status not in ("pass", "skipped")]
    besides += [finding for finding in checks if finding.status == "warn"]
    if failed or unknown:
        what = "its result is wrong" if failed else "its result could not be checked"
        return f"the launch ran, but {what}. {_first([*(failed or unknown), *besides])}"
    parts = [good(reports, smoke, checks), note, _first(besides)]
    return "; ".join(part for part in parts if part)


def after_failure(ended: Sequence[Finding], checks: Sequence[Finding]) -> str:
    """How the launch ended, and what the stages that were done by then had found.

    That ranks did not report more, and what is therefore unknown, follows from the end.
    """
    found = [one for one in checks if one.status in ("fail", "warn") and one.id != stages.REPORT.id]
    found.sort(key=lambda one: one.status != "fail")
    whole = _first(ended)
    return f"{whole}; what was reported before shows: {_first(found)}" if found else whole


def good(reports: Reports, smoke: Mapping[str, Any], checks: Sequence[Finding]) -> str:
    """Of what was tried, and of that alone."""
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
    """Samples a second and the bandwidth over the slowest level that was measured; else the efficiency."""
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
    """The first few, each with its place and its fix, and how many more there are."""
    lines = as_lines(findings)
    more = [f"and {len(lines) - TOLD} more"] if len(lines) > TOLD else []
    return "; ".join([*lines[:TOLD], *more])
