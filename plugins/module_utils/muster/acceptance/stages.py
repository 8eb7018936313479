"""Evaluate how each stage ended on each rank.

If one rank hangs, dies or raises an exception, its peers also fail in the middle of a collective. Therefore a finding
names the ranks that caused the failure, and only counts the other ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.words import plural
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Report, Reports

REPORT = Check(
    "smoke.report",
    seen="stand-in",
    reads="the stages that each rank reported",
    fires="a rank did not report a stage (fail)",
    fix="Check the rank's log",
)
STAGE = Check(
    "smoke.stage",
    seen="sandbox",
    reads="the outcome of each stage of the acceptance test on each rank",
    fires="a stage raised an exception, timed out and was killed, or its process died (fail). Peers that fail as a"
    " consequence are counted but not named",
    fix="Check the rank's log",
)
CHECKS = (REPORT, STAGE)

NOT_DONE = ("failed", "timeout", "lost")
HELD = ("T", "D")  # process states of the kernel: stopped, and waiting for a device
# Messages of Gloo, NCCL and the store about a peer that is gone or silent
OF_PEERS = re.compile(
    r"Connection (?:closed|reset) by peer|Connection refused|Broken pipe|timed out|did not come to the process group"
    r"|remote process (?:exited|has terminated)|NCCL (?:communicator was aborted|WARN|error)|DistStoreError",
    re.IGNORECASE,
)


def judge(reports: Reports) -> Iterator[Said]:
    yield from silent(reports)
    bad = False
    for stage, by_rank in reports.stages.items():
        not_done = {rank: report for rank, report in sorted(by_rank.items()) if report.status in NOT_DONE}
        if not not_done:
            continue
        bad = True
        if set(by_rank) < set(reports.places) and all(of_peers(report) for report in not_done.values()):
            continue  # caused by a rank without a report of this stage, which has a finding of smoke.report
        named = causes(not_done, reports)
        rest = len(not_done) - len(set(named) & set(not_done))
        after = f" ({plural(rest, 'other rank')} failed as a consequence)" if rest else ""
        for rank in named:
            why = by_rank[rank].why if rank in by_rank else "the rank did not join"
            text = f"{reports.named(rank)}: the stage {stage} {said(by_rank.get(rank), why)}{after}"
            yield STAGE.fail(reports.places[rank].node, text)
    if not bad and reports.stages:
        yield STAGE.passed(reports.head, f"{plural(len(reports.stages), 'stage')} finished")


def said(report: Report | None, why: str) -> str:
    if report is None or report.status == "failed":
        return f"failed: {why}"
    return why.replace("its process was", "was lost: its process was") if report.status == "lost" else why


def causes(not_done: Mapping[int, Report], reports: Reports) -> list[int]:
    """Return the ranks that caused the failure. They are the first of these groups that is not empty: ranks that did
    not join; ranks that died; ranks that were stopped or wait for a device; ranks that failed with their own error;
    ranks that made the least progress; all ranks."""
    absent = {rank for report in not_done.values() for rank in absent_in(report) if rank in reports.places}
    if absent:
        return sorted(absent)
    groups = (
        [rank for rank, report in not_done.items() if report.status == "lost"],
        [rank for rank, report in not_done.items() if report.facts.get("state") in HELD],
        [rank for rank, report in not_done.items() if report.status == "failed" and not of_peers(report)],
    )
    for group in groups:
        if group:
            return group
    late = {rank: at for rank, report in not_done.items() if (at := number(report.facts.get("at"))) is not None}
    if late:
        return [rank for rank, at in late.items() if at == min(late.values())]
    return list(not_done)


def of_peers(report: Report) -> bool:
    """Return whether the rank failed because it lost a peer, and its error does not name this peer."""
    return report.status == "failed" and not absent_in(report) and bool(OF_PEERS.search(report.why))


def absent_in(report: Report) -> list[int]:
    told = report.facts.get("absent")
    return [rank for rank in told if isinstance(rank, int)] if isinstance(told, list) else []


def silent(reports: Reports) -> Iterator[Said]:
    found = False
    for rank, place in reports.places.items():
        missing = [stage for stage in reports.wanted if rank not in reports.stages.get(stage, {})]
        if missing:
            found = True
            what = "anything" if len(missing) == len(reports.wanted) else ", ".join(missing)
            text = f"{reports.named(rank)} did not report {what}"
            yield REPORT.fail(place.node, text, fix="", expected=f"a report of rank {rank}")
    if not found:
        yield REPORT.passed(reports.head, f"all {plural(len(reports.places), 'rank')} reported")
