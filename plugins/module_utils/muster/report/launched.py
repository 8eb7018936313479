"""How a launch ended, in one word for scripts: run.json has it, since ansible-playbook ends with 2 in most cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch import attempts
from ..launch.endings import Ending, never

if TYPE_CHECKING:
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
