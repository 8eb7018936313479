"""The verdict of a whole run, of which each step (health, the launch, what it computed) tells its part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.finding import add_up, findings_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding, Verdict


def joined(earlier: Mapping[str, Any], later: Mapping[str, Any], instead_of: Sequence[str] = ()) -> Verdict:
    """The findings of both added up; where both speak of the same node and peer, the later one is right.

    instead_of: beginnings of ids of which nothing earlier is kept, because the later verdict speaks of all of them.
    """
    newer = findings_in(later)
    replaced = {_subject(finding) for finding in newer}
    kept = [
        finding
        for finding in findings_in(earlier)
        if _subject(finding) not in replaced and not finding.id.startswith(tuple(instead_of))
    ]
    looked = {(finding.id, finding.node) for finding in (*kept, *newer)}
    skipped = [
        entry
        for entry in (*earlier.get("coverage", {}).get("skipped", []), *later.get("coverage", {}).get("skipped", []))
        if (entry["id"], entry.get("node")) not in looked
    ]
    both = add_up(
        [*kept, *newer],
        skipped=list({tuple(sorted(entry.items())): entry for entry in skipped}.values()),
        ran=[name for one in (earlier, later) for name in one.get("coverage", {}).get("ran", [])],
    )
    # What a step says of itself says more than its worst finding.
    for step in (later, earlier if kept else {}):
        if step.get("status") == both["status"] and step.get("summary"):
            both["summary"] = step["summary"]
            break
    return both


def ended_with(step: Verdict, whole: Verdict) -> Verdict:
    """What a run says in the end, of its last step and of all of it: where the step went well, and an earlier one has
    warned, the last line says what the page says, in the step's words."""
    if (step["status"], whole["status"]) == ("healthy", "degraded"):
        return {**whole, "summary": step["summary"]}
    return step


def _subject(finding: Finding) -> tuple[str, str, str | None]:
    return finding.id, finding.node, finding.peer
