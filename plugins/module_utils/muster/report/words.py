"""The sentences of the report: the outcome of the run, the causes of problems, and commands for the user."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..verdict.finding import Finding, as_lines, fix_with
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORDS = {
    "healthy": "Healthy",
    "degraded": "Degraded",
    "failed": "Failed",
    "unknown": "Unknown",
    "stopped": "Stopped",
}
# Status of a finding, worst first -> CSS class of its colour.
MARKS = {"fail": "fail", "unknown": "unknown", "warn": "warn", "skipped": "skipped", "pass": "pass"}
WORST = tuple(MARKS)
SHOWN = 30  # unfolded causes; the others are one click away
ALIKE = 4  # unfolded causes of one check
NODES_SHOWN = 12


def mark(status: Any) -> str:
    """Return the CSS class of a status. A status that is not listed is treated as unknown."""
    return MARKS.get(str(status), "unknown")


def headline(run: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict in one sentence, the affected nodes, and the next command for the user."""
    status = str(verdict.get("status", ""))
    failures = run.get("failures", [])
    if failures and status in ("", "healthy", "degraded"):
        first = failures[0]
        more = f" (and {plural(len(failures) - 1, 'other')})" if len(failures) > 1 else ""
        sentence = f"at “{first['task']}”{more}: {_first_line(first['why'])}"
        # The other nodes may have continued without the failed ones and reached a verdict.
        went_on = all(failure.get("before_verdict") for failure in failures)
        status = "degraded" if went_on else "stopped"
        return {
            "status": status,
            "word": WORDS[status],
            "nodes": [first["node"]],
            "sentence": f"{sentence.rstrip('.')}. The others continued: {verdict['summary']}" if went_on else sentence,
            "advice": "Fix this problem, then run the playbook again; completed steps are not repeated",
            "command": str(run.get("command", "")),
        }
    head = {"status": status, "word": WORDS.get(status, ""), "nodes": [], "advice": "", "command": ""}
    if status not in WORDS:
        return {**head, "status": "unknown", "word": WORDS["unknown"], "sentence": "Nothing was checked."}
    head["sentence"] = str(verdict.get("summary", ""))
    findings = _sorted(verdict.get("findings", []))
    if status == "healthy" or not findings:
        return head
    # Among equally bad findings, prefer the one in the verdict's summary, such as the cause of a failed launch.
    equal = [found for found in findings if found["status"] == findings[0]["status"]]
    worst = next((found for found in equal if found["summary"] in head["sentence"]), findings[0])
    same = [found["node"] for found in findings if (found["id"], found["summary"]) == (worst["id"], worst["summary"])]
    fix = worst.get("fix") or {}
    return {
        **head,
        "nodes": list(dict.fromkeys(same)),
        "sentence": worst["summary"],
        "advice": fix.get("text", ""),
        "command": fix.get("command", ""),
    }


def causes(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the findings that did not pass, worst first. Nodes with the same finding are grouped."""
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for finding in _sorted(verdict.get("findings", [])):
        fix = finding.get("fix") or {}
        key = (finding["id"], finding["status"], finding["summary"], fix.get("text", ""), fix.get("command", ""))
        cause = groups.setdefault(
            key,
            {
                "id": finding["id"],
                "anchors": [],
                "mark": mark(finding["status"]),
                "nodes": [],
                "summary": finding["summary"],
                "observed": finding.get("observed") or "",
                "expected": finding.get("expected") or "",
                "advice": fix.get("text", ""),
                "command": fix.get("command", ""),
                "proofs": [],
            },
        )
        name = f"{finding['node']} → {finding['peer']}" if finding.get("peer") else finding["node"]
        cause["nodes"].append(name)
        cause["anchors"].append(anchor(finding["id"], finding["node"]))
        cause["proofs"] += [
            {"source": proof.get("source", ""), "text": proof.get("text", "")}
            for proof in finding.get("evidence") or []
        ]
    if not groups:
        return None
    shown = list(groups.values())
    linked: set[str] = set()
    for cause in shown:
        names = list(dict.fromkeys(cause["nodes"]))
        cause["nodes"], cause["more_nodes"] = names[:NODES_SHOWN], names[NODES_SHOWN:]
        cause["proofs"] = cause["proofs"][:NODES_SHOWN]
        cause["anchors"] = [name for name in dict.fromkeys(cause["anchors"]) if name not in linked]
        linked.update(cause["anchors"])
    counts = {status: sum(cause["mark"] == status for cause in shown) for status in ("fail", "unknown", "warn")}
    first, rest = unfolded(shown)
    of_checks = Counter(cause["id"] for cause in rest)
    about = ", ".join(f"{count} {identity}" for identity, count in of_checks.most_common(NODES_SHOWN))
    return {"counts": counts, "first": first, "rest": rest, "rest_about": about}


def unfolded(shown: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the causes into unfolded and folded ones, so that one check that fails on many nodes does not hide the
    others."""
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    seen: Counter[tuple[str, str]] = Counter()
    for cause in shown:
        kind = (cause["id"], cause["mark"])
        seen[kind] += 1
        (first if seen[kind] <= ALIKE and len(first) < SHOWN else rest).append(cause)
    return first, rest


def stops(run: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where the run stopped. Nodes with the same reason are grouped. Failures that a finding already describes
    are left out."""
    known = {f"{line}." for line in as_lines([_finding(found) for found in _sorted(verdict.get("findings", []))])}
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for failure in run.get("failures", []):
        if known and known.issuperset(str(failure["why"]).splitlines()):
            continue
        why = str(failure["why"]).replace(failure["node"], "…") if len(run["failures"]) > 1 else str(failure["why"])
        stop = groups.setdefault(
            (failure["task"], why),
            {
                "task": failure["task"],
                "why": str(failure["why"]),
                "nodes": [],
                "lost": bool(failure.get("unreachable")),
            },
        )
        stop["nodes"].append(failure["node"])
    return list(groups.values())


def anchor(identity: str, node: str) -> str:
    """Return the HTML anchor of a finding."""
    return "f-" + re.sub(r"[^A-Za-z0-9]+", "-", f"{identity} {node}")


def moment(text: str) -> str:
    """Format an ISO time such as 2026-11-21T21:48:58+00:00 for display."""
    found = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d)?(?:\.\d+)?(Z|[+-]\d\d:\d\d)?$", text)
    if found is None:
        return text
    zone = found[3] or ""
    return f"{found[1]} {found[2]}" + (" UTC" if zone in ("Z", "+00:00") else f" {zone}" if zone else "")


def duration(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def number(value: Any) -> str:
    """Format a measured value with three significant digits."""
    if not isinstance(value, (int, float)):
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.3g}"


def _sorted(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    bad = [finding for finding in findings if finding["status"] not in ("pass", "skipped")]
    return sorted(bad, key=lambda finding: WORST.index(mark(finding["status"])))


def _finding(found: Mapping[str, Any]) -> Finding:
    return Finding(
        found["id"], mark(found["status"]), found["node"], found["summary"], fix=fix_with(**(found.get("fix") or {}))
    )


def _first_line(text: str) -> str:
    """Return the first line. If a list follows, add the first entry of this list."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()] or ["failed"]
    return " ".join([lines[0], *(line.removeprefix("- ") for line in lines[1:2] if line.startswith("- "))])
