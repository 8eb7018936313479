"""Findings, and what they add up to.

A finding is one conclusion about one node (or the link to a peer); a verdict is the findings of every node added up.
Their shapes are the contract between modules, artifacts and reports: see `Finding` and `add_up`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

STATUSES = ("pass", "warn", "fail", "unknown", "skipped")


@dataclass(frozen=True)
class Finding:
    """One conclusion.

    id: stable, dotted, lower-case. status: one of STATUSES. node: inventory name, or "controller".
    observed/expected: short values for people. evidence: [{source, text}]. fix: {text, command?}.
    """

    id: str
    status: str
    node: str
    summary: str
    observed: str = ""
    expected: str = ""
    evidence: list[dict[str, str]] = field(default_factory=list)
    fix: dict[str, str] = field(default_factory=dict)
    peer: str | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"finding {self.id}: status {self.status!r} is none of {', '.join(STATUSES)}")

    def as_dict(self) -> dict[str, Any]:
        shape = asdict(self)
        if self.peer is None:
            del shape["peer"]
        return shape


def evidence(source: str, text: str) -> list[dict[str, str]]:
    return [{"source": source, "text": text}]


def fix_with(text: str = "", command: str = "") -> dict[str, str]:
    """A finding's fix, without what is not known of it."""
    return {key: value for key, value in (("text", text), ("command", command)) if value}


def add_up(
    findings: list[Finding],
    summary: str = "",
    skipped: list[dict[str, str]] | None = None,
    ran: Collection[str] = (),
) -> dict[str, Any]:
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
        "coverage": {"ran": sorted({*ran, *(finding.id for finding in findings)}), "skipped": skipped or []},
    }


def worst_summary(findings: list[Finding]) -> str:
    for status in ("fail", "unknown", "warn", "pass"):
        for finding in findings:
            if finding.status == status:
                return with_fix(finding)
    return "nothing was looked at"


def told(findings: list[Finding]) -> list[str]:
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
