"""The verdict of a run, to which each step adds its part, and how its launch ended, in one word for scripts."""

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
# Where a verdict has several, as one of a failure and of what is left of it: the first of these counts.
ORDER = (GIVEN_UP, FAILED, LOST, REFUSED, STOPPED, DETACHED, FINISHED)
PLAYBOOK = "launch.yml"


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


def word_of(ending: Ending) -> str:
    """Return what an ending is to the user: a failure of the launch, a lost node or controller, or neither."""
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
    """One of ORDER; "" where the run launched nothing and was not to."""
    # That no other attempt is made comes with the failure itself.
    by_id = {ending.check.id: word_of(ending) for ending in Ending} | {attempts.GIVEN_UP.id: GIVEN_UP}
    found = {
        by_id[finding["id"]]
        for finding in kept.verdict.get("findings", [])
        if finding["id"] in by_id and finding["status"] != "warn"
    }
    if found:
        return next(said for said in ORDER if said in found)
    # Of an acceptance test that computed something, the verdict speaks of that.
    meant = PLAYBOOK in str(kept.run.get("playbook", "")).split(", ") or (kept.plan and not kept.smoke)
    return REFUSED if meant and not kept.run.get("check") and went_wrong(kept) else ""


def went_wrong(kept: Artifacts) -> bool:
    """Whether something stood against the launch before it had begun."""
    return bool(kept.run.get("failures")) or kept.verdict.get("status") in ("failed", "unknown")
