"""Findings, and what they add up to.

A finding is one conclusion about one node (or the link to a peer); a verdict is the findings of every node added up.
Their shapes are the contract between modules, artifacts and reports: see `Finding` and `add_up`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from .printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

STATUSES = ("pass", "warn", "fail", "unknown", "skipped")


class FindingEvidence(TypedDict):
    """Where something was read, and what it said there."""

    source: str
    text: str


class FindingFix(TypedDict, total=False):
    """What fixes it, and what to type for that."""

    text: str
    command: str


class NotLooked(TypedDict):
    """What was not looked for, as an id or as the beginning of several, and why."""

    id: str
    why: str


class Skipped(NotLooked, total=False):
    """node: where one verdict is about several."""

    node: str


class Coverage(TypedDict):
    """ran: ids of what was looked for, found or not."""

    ran: list[str]
    skipped: list[Skipped]


class FindingShape(TypedDict, total=False):
    """A finding outside of the code; it has a peer only where it is about a link."""

    id: str
    status: str
    node: str
    summary: str
    observed: str
    expected: str
    evidence: list[FindingEvidence]
    fix: FindingFix
    peer: str


class Verdict(TypedDict):
    """status: healthy, degraded, failed or unknown. summary: one line for people."""

    schema: int
    status: str
    summary: str
    findings: list[FindingShape]
    coverage: Coverage


@dataclass(frozen=True)
class Finding:
    """One conclusion; whatever a node said in it is printable.

    id: stable, dotted, lower-case. status: one of STATUSES. node: inventory name, or "controller".
    observed/expected: short values for people. fix: without what is not known of it.
    """

    id: str
    status: str
    node: str
    summary: str
    observed: str = ""
    expected: str = ""
    evidence: list[FindingEvidence] = field(default_factory=list)
    fix: FindingFix = field(default_factory=FindingFix)
    peer: str | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"finding {self.id}: status {self.status!r} is none of {', '.join(STATUSES)}")
        for name in ("summary", "observed", "expected"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        proofs = [
            FindingEvidence(source=printable(one["source"]), text=printable(one["text"])) for one in self.evidence
        ]
        object.__setattr__(self, "evidence", proofs)
        fix = fix_with(printable(self.fix.get("text", "")), printable(self.fix.get("command", "")))
        object.__setattr__(self, "fix", fix)

    def as_dict(self) -> FindingShape:
        shape = FindingShape(
            id=self.id,
            status=self.status,
            node=self.node,
            summary=self.summary,
            observed=self.observed,
            expected=self.expected,
            evidence=self.evidence,
            fix=self.fix,
        )
        if self.peer is not None:
            shape["peer"] = self.peer
        return shape


def evidence(source: str, text: str) -> list[FindingEvidence]:
    return [FindingEvidence(source=source, text=text)]


def fix_with(text: str = "", command: str = "") -> FindingFix:
    """A finding's fix, without what is not known of it."""
    fix = FindingFix()
    if text:
        fix["text"] = text
    if command:
        fix["command"] = command
    return fix


def add_up(
    findings: Sequence[Finding], summary: str = "", skipped: Sequence[Skipped] = (), ran: Collection[str] = ()
) -> Verdict:
    """The verdict: failed when anything failed, else unknown, degraded or healthy; never healthy without a look.

    ran: ids that were looked for, where that is known, beside those that were found.
    """
    statuses = {finding.status for finding in findings}
    if "fail" in statuses:
        status = "failed"
    elif "unknown" in statuses or not statuses & {"pass", "warn"}:
        status = "unknown"
    elif "warn" in statuses:
        status = "degraded"
    else:
        status = "healthy"
    return {
        "schema": 1,
        "status": status,
        "summary": summary or worst_summary(findings),
        "findings": [finding.as_dict() for finding in findings],
        "coverage": {"ran": sorted({*ran, *(finding.id for finding in findings)}), "skipped": list(skipped)},
    }


def findings_in(verdict: Mapping[str, Any]) -> list[Finding]:
    """The findings of a verdict, or of whatever else carries some, as it was written."""
    return [Finding(**one) for one in verdict.get("findings", ())]


def extended(
    verdict: Verdict, before: Iterable[Finding] = (), after: Iterable[Finding] = (), summary: str = ""
) -> Verdict:
    """The verdict added up again with more findings; summary: in the place of its own."""
    found = [*before, *findings_in(verdict), *after]
    coverage = verdict["coverage"]
    return add_up(found, summary or verdict["summary"], coverage["skipped"], coverage["ran"])


def worst_summary(findings: Sequence[Finding]) -> str:
    for status in ("fail", "unknown", "warn", "pass"):
        for finding in findings:
            if finding.status == status:
                return with_fix(finding)
    return "nothing was looked at"


def as_lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each conclusion, in order; the nodes that it holds for stand together before it."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.summary, finding.fix.get("text", ""), finding.fix.get("command", ""))
        nodes.setdefault(key, []).append(finding.node)
        first.setdefault(key, finding)
    return [with_fix(finding, ", ".join(dict.fromkeys(nodes[key]))) for key, finding in first.items()]


def with_fix(finding: Finding, nodes: str = "") -> str:
    """The finding as one line for people: which node, why, and what to type."""
    line = f"{nodes or finding.node}: {finding.summary}"
    if finding.fix.get("text"):
        line += f". {finding.fix['text']}"
    if finding.fix.get("command"):
        line += f": {finding.fix['command']}"
    return line
