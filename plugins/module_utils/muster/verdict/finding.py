"""Findings and verdicts.

A finding is one conclusion about one node or about its link to a peer. A verdict summarizes the findings of all nodes.
Modules, artifacts and reports rely on the shapes of both: see `Finding` and `add_up`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from .printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

STATUSES = ("pass", "warn", "fail", "unknown", "skipped")


class FindingEvidence(TypedDict):
    """The evidence of a finding: a source, and the text read from this source."""

    source: str
    text: str


class FindingFix(TypedDict, total=False):
    """The fix of a finding, and a command for it."""

    text: str
    command: str


class NotLooked(TypedDict):
    """A check that did not run, and why. The id can also be a prefix of several ids."""

    id: str
    why: str


class Skipped(NotLooked, total=False):
    """A skipped check. node: set if the verdict is about several nodes."""

    node: str


class Coverage(TypedDict):
    """Which checks of a verdict ran and which were skipped. ran: ids of the checks that ran."""

    ran: list[str]
    skipped: list[Skipped]


class FindingShape(TypedDict, total=False):
    """A finding as JSON. `peer` is present only if the finding is about a link."""

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
    """The summary of all findings. status: healthy, degraded, failed or unknown. summary: one line for the user."""

    schema: int
    status: str
    summary: str
    findings: list[FindingShape]
    coverage: Coverage


@dataclass(frozen=True)
class Finding:
    """One conclusion. Text from nodes is made printable.

    id: stable, dotted, lower-case. status: one of STATUSES. node: inventory name, or "controller". observed/expected:
    short values for the user. fix: contains no empty parts.
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
            raise ValueError(f"finding {self.id}: status {self.status!r} is not one of {', '.join(STATUSES)}")
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
    """Return the fix of a finding, without empty parts."""
    fix = FindingFix()
    if text:
        fix["text"] = text
    if command:
        fix["command"] = command
    return fix


def add_up(
    findings: Sequence[Finding], summary: str = "", skipped: Sequence[Skipped] = (), ran: Collection[str] = ()
) -> Verdict:
    """Return the verdict: failed if any finding failed, else unknown, degraded or healthy. If there are no findings,
    the verdict is unknown.

    ran: ids of checks that ran, in addition to those that have findings.
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
    """Return the findings of a verdict, or of another mapping with findings."""
    return [Finding(**one) for one in verdict.get("findings", ())]


def extended(
    verdict: Verdict, before: Iterable[Finding] = (), after: Iterable[Finding] = (), summary: str = ""
) -> Verdict:
    """Return the verdict with additional findings. summary: replaces the summary of the verdict."""
    found = [*before, *findings_in(verdict), *after]
    coverage = verdict["coverage"]
    return add_up(found, summary or verdict["summary"], coverage["skipped"], coverage["ran"])


def worst_summary(findings: Sequence[Finding]) -> str:
    for status in ("fail", "unknown", "warn", "pass"):
        for finding in findings:
            if finding.status == status:
                return with_fix(finding)
    return "nothing was checked"


def as_lines(findings: Iterable[Finding]) -> list[str]:
    """Return one line for each conclusion, in order. The line begins with the nodes that share the conclusion."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.summary, finding.fix.get("text", ""), finding.fix.get("command", ""))
        nodes.setdefault(key, []).append(finding.node)
        first.setdefault(key, finding)
    return [with_fix(finding, ", ".join(dict.fromkeys(nodes[key]))) for key, finding in first.items()]


def with_fix(finding: Finding, nodes: str = "") -> str:
    """Format a finding as one line: node, summary, fix and command."""
    line = f"{nodes or finding.node}: {finding.summary}"
    if finding.fix.get("text"):
        line += f". {finding.fix['text']}"
    if finding.fix.get("command"):
        line += f": {finding.fix['command']}"
    return line
