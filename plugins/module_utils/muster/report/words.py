"""The sentences of the page: what came of the run, why, and what to type."""

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
# Of a finding, the worst first; and the class of its colour.
MARKS = {"fail": "fail", "unknown": "unknown", "warn": "warn", "skipped": "skipped", "pass": "pass"}
WORST = tuple(MARKS)
SHOWN = 30  # causes that are unfolded; the others are one click away
ALIKE = 4  # of these, so many of one check
NODES_SHOWN = 12


def mark(status: Any) -> str:
    """The class of a status. What is none of ours is not known."""
    return MARKS.get(str(status), "unknown")


def headline(run: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict in one sentence, the nodes it is about, and what to type next."""
    status = str(verdict.get("status", ""))
    failures = run.get("failures", [])
    if failures and status in ("", "healthy", "degraded"):
        first = failures[0]
        more = f" (and {plural(len(failures) - 1, 'other')})" if len(failures) > 1 else ""
        sentence = f"at “{first['task']}”{more}: {_first_line(first['why'])}"
        # The others may have gone on without the nodes that failed, and come to a verdict.
        went_on = all(failure.get("before_verdict") for failure in failures)
        status = "degraded" if went_on else "stopped"
        return {
            "status": status,
            "word": WORDS[status],
            "nodes": [first["node"]],
            "sentence": f"{sentence.rstrip('.')}. The others went on: {verdict['summary']}" if went_on else sentence,
            "advice": "When that is fixed, run it again: what is done already is not done twice",
            "command": str(run.get("command", "")),
        }
    head = {"status": status, "word": WORDS.get(status, ""), "nodes": [], "advice": "", "command": ""}
    if status not in WORDS:
        return {**head, "status": "unknown", "word": WORDS["unknown"], "sentence": "Nothing was looked at."}
    head["sentence"] = str(verdict.get("summary", ""))
    findings = _sorted(verdict.get("findings", []))
    if status == "healthy" or not findings:
        return head
    # Of equally bad ones that which the verdict itself says, such as the cause of what a launch showed.
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
    """What was found that is not as it should be, worst first; the nodes that one sentence holds for stand together."""
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
    """What is shown at once, and what is folded: the same check on node after node does not hide the others."""
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    seen: Counter[tuple[str, str]] = Counter()
    for cause in shown:
        kind = (cause["id"], cause["mark"])
        seen[kind] += 1
        (first if seen[kind] <= ALIKE and len(first) < SHOWN else rest).append(cause)
    return first, rest


def stops(run: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the run stopped: the same reason on many nodes once, and nothing that was found and is told already."""
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
    """The name that a place of the page is linked by."""
    return "f-" + re.sub(r"[^A-Za-z0-9]+", "-", f"{identity} {node}")


def moment(text: str) -> str:
    """2026-11-21T21:48:58+00:00 for people."""
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
    """A measured value with three digits that matter, and no more."""
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
    """The first line; with the first entry of the list that it may lead to."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()] or ["failed"]
    return " ".join([lines[0], *(line.removeprefix("- ") for line in lines[1:2] if line.startswith("- "))])
