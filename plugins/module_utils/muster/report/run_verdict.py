"""The verdict of a run, merged from its steps, and a single word for the outcome of the run's launch, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..launch import attempts
from ..launch.endings import Ending, never
from ..verdict.finding import Finding, add_up, findings_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Verdict
    from .artifacts import Artifacts

FINISHED = "finished"
FAILED = "failed"
LOST = "lost"
REFUSED = "refused"
STOPPED = "stopped"
DETACHED = "detached"
GIVEN_UP = "given_up"
# If a verdict has several, such as a failure and its consequences, the first of these counts.
ORDER = (GIVEN_UP, FAILED, LOST, REFUSED, STOPPED, DETACHED, FINISHED)
PLAYBOOK = "launch.yml"


def joined(earlier: Mapping[str, Any], later: Mapping[str, Any], instead_of: Sequence[str] = ()) -> Verdict:
    """Merge the findings of two verdicts. If both have a finding with the same check, node and peer, the later finding
    wins.

    instead_of: id prefixes whose earlier findings are dropped, because the later verdict covers them completely.
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
    # The summary of a step is more specific than its worst finding.
    for step in (later, earlier if kept else {}):
        if step.get("status") == both["status"] and step.get("summary"):
            both["summary"] = step["summary"]
            break
    return both


def ended_with(step: Verdict, whole: Verdict) -> Verdict:
    """Return the verdict for the last line. If the last step is healthy but an earlier step has warnings, return the
    verdict of the whole run with the step's summary, so that the line matches the report."""
    if (step["status"], whole["status"]) == ("healthy", "degraded"):
        return {**whole, "summary": step["summary"]}
    return step


def _subject(finding: Finding) -> tuple[str, str, str | None]:
    return finding.id, finding.node, finding.peer


def word_of(ending: Ending) -> str:
    """Return the word for the outcome of a launch: finished, failed, lost, refused, stopped or detached."""
    match ending:
        case Ending.FINISHED:
            found = FINISHED
        case Ending.FAILED | Ending.EXCEPTION | Ending.SIGNAL | Ending.EXIT | Ending.AGENT | Ending.UNIT:
            found = FAILED
        case Ending.LIMIT | Ending.STALLED:
            found = FAILED
        case Ending.NODE | Ending.PEER | Ending.LEASE:
            found = LOST
        case Ending.TAKEN:
            found = REFUSED
        case Ending.INTERRUPTED:
            found = STOPPED
        case Ending.DETACHED:
            found = DETACHED
        case other:
            never(other)
    return found


def word(kept: Artifacts) -> str:
    """Return the word for the run, one of ORDER; "" if the run was not supposed to launch anything."""
    # GIVEN_UP (no further attempt) accompanies the failure itself.
    by_id = {ending.check.id: word_of(ending) for ending in Ending} | {attempts.GIVEN_UP.id: GIVEN_UP}
    found = {
        by_id[finding["id"]]
        for finding in kept.verdict.get("findings", [])
        if finding["id"] in by_id and finding["status"] != "warn"
    }
    if found:
        return next(said for said in ORDER if said in found)
    # If an acceptance test computed something, its verdict has the details.
    meant = PLAYBOOK in str(kept.run.get("playbook", "")).split(", ") or (kept.plan and not kept.smoke)
    return REFUSED if meant and not kept.run.get("check") and went_wrong(kept) else ""


def went_wrong(kept: Artifacts) -> bool:
    """Return whether something blocked the launch before it began."""
    return bool(kept.run.get("failures")) or kept.verdict.get("status") in ("failed", "unknown")
