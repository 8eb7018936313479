"""Converts a run to a JUnit test suite for CI pipelines, with one case per check and node.

JUnit has no warnings, so a check with a warning passes and its output contains the warning. A check that could not be
completed is an error. A failed check is a failure.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..acceptance.metrics import rows
from ..acceptance.reports import number
from .words import mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .artifacts import Artifacts

# Worst first; a case with several findings has the worst of their results.
RESULTS = ("failure", "error", "skipped", "pass")
OF_FINDINGS = {"fail": "failure", "unknown": "error", "skipped": "skipped", "warn": "pass", "pass": "pass"}
OF_STAGES = {"ok": "pass", "wrong": "failure", "failed": "failure", "timeout": "failure", "skipped": "skipped"}
EVERYWHERE = "cluster"


@dataclass
class JUnitCase:
    """A test case. of: a node, or a rank of a node. message: the first line of the reason. text: the full details."""

    of: str
    name: str
    result: str
    message: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Suite:
    """The attributes of a <testsuite>, and its cases."""

    name: str
    began: str
    seconds: float
    cases: list[JUnitCase] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(case.result for case in self.cases)
        return {
            "tests": len(self.cases),
            "failures": found["failure"],
            "errors": found["error"],
            "skipped": found["skipped"],
        }


def suite(kept: Artifacts) -> Suite:
    cases: dict[tuple[str, str], JUnitCase] = {}
    for case in (*_findings(kept.verdict), *_stops(kept.run), *_skipped(kept.verdict), *_stages(kept.smoke)):
        other = cases.setdefault((case.of, case.name), case)
        if other is not case:
            _add(other, case)
    run = kept.run
    name = f"{run.get('cluster', '')}: {run.get('playbook', '')}"
    return Suite(name, str(run.get("began", "")), _seconds(run.get("seconds")), list(cases.values()))


def _add(case: JUnitCase, more: JUnitCase) -> None:
    """Merge another finding of the same check and node into a case."""
    if RESULTS.index(more.result) < RESULTS.index(case.result):
        case.result, case.message = more.result, more.message
    case.text = "\n\n".join(text for text in (case.text, more.text) if text)


def _findings(verdict: Mapping[str, Any]) -> Iterator[JUnitCase]:
    for finding in verdict.get("findings", []):
        summary, fix = str(finding.get("summary", "")), finding.get("fix") or {}
        peer = f" to {finding['peer']}" if finding.get("peer") else ""
        lines = [
            ("observed", finding.get("observed")),
            ("expected", finding.get("expected")),
            ("fix", fix.get("text")),
            ("run", fix.get("command")),
            *((proof.get("source", ""), proof.get("text", "")) for proof in finding.get("evidence") or []),
        ]
        status = mark(finding.get("status"))
        head = summary if status == "pass" else f"{status}: {summary}"
        text = "\n".join([head, *(f"{name}: {value}" for name, value in lines if value)])
        yield JUnitCase(
            str(finding.get("node", "")), f"{finding.get('id', '')}{peer}", OF_FINDINGS[status], summary, text
        )


def _stops(run: Mapping[str, Any]) -> Iterator[JUnitCase]:
    for failure in run.get("failures", []):
        why = str(failure.get("why", ""))
        first = next(iter(why.splitlines()), "failed")
        yield JUnitCase(str(failure.get("node", "")), str(failure.get("task", "")), "error", first, why)


def _skipped(verdict: Mapping[str, Any]) -> Iterator[JUnitCase]:
    looked = {(str(one.get("node")), one.get("id")) for one in verdict.get("findings", [])}
    for entry in (verdict.get("coverage") or {}).get("skipped", []):
        of = str(entry.get("node") or EVERYWHERE)
        if (of, entry.get("id")) not in looked:
            yield JUnitCase(of, str(entry.get("id", "")), "skipped", str(entry.get("why", "")))


def _stages(smoke: Mapping[str, Any]) -> Iterator[JUnitCase]:
    for rank in rows(smoke, "ranks"):
        stages = rank.get("stages")
        for name, report in stages.items() if isinstance(stages, dict) else ():
            if not isinstance(report, dict):
                continue
            of, why = f"{rank.get('node', '')}.rank{rank.get('rank', '')}", str(report.get("why") or "")
            result = OF_STAGES.get(str(report.get("status")), "error")
            yield JUnitCase(of, f"stage {name}", result, why, why, _seconds(report.get("seconds")))


def _seconds(value: Any) -> float:
    found = number(value)
    return round(found, 3) if found is not None and math.isfinite(found) else 0.0
