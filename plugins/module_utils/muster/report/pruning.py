"""Which runs of a cluster stay among the artifacts where only so many are to be kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OPTION = "cluster_artifacts_keep"
# What Muster writes into the folder of a run. Whatever else lies there is somebody's: fetched results, or notes.
OWN = frozenset(
    (
        *("run.json", "verdict.json", "inspect.json", "network.json", "rails.json", "plan.json", "attempts.json"),
        *("smoke.json", "comparison.json", "shared_data.json", "diagnosis.json", "evidence.json", "drift.json"),
        *("drift.log", "repair.log", "report.html", "junit.xml", "health", "logs", "evidence"),
    )
)
# Later runs go by the newest that has it: status, the acceptance test, diagnose.
NEWEST_WITH = ("plan.json", "smoke.json", "health", "drift.json", "rails.json", "comparison.json")
NOT_OVER = "not known to be over"
REFERRED = "referred to"
FOREIGN = "with what is not Muster's"


@dataclass(frozen=True)
class KeptRun:
    """over: it has ended, and so has all that it launched. names: what lies in its folder. mentions: runs that its
    files speak of. own: whether the folder is the user's own, and no link.
    """

    id: str
    over: bool
    names: Collection[str]
    mentions: Collection[str] = ()
    own: bool = True


@dataclass(frozen=True)
class PruningDecision:
    """kept: beside the newest ones, each with the reason."""

    newest: Sequence[str]
    kept: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()


def decide(runs: Sequence[KeptRun], most: int, named: Collection[str]) -> PruningDecision:
    """runs: the newest first. most: so many of the newest stay, all where it is 0. named: runs that latest or the
    accepted state speak of.
    """
    if most <= 0:
        return PruningDecision([run.id for run in runs])
    newest, older = runs[:most], runs[most:]
    by_id = {run.id: run for run in older}
    last = {next((run.id for run in runs if name in run.names), "") for name in NEWEST_WITH}
    kept: dict[str, str] = {}
    for run in older:
        if not run.over:
            kept[run.id] = NOT_OVER
        elif not run.own or not OWN.issuperset(run.names):
            kept[run.id] = FOREIGN
        elif run.id in last or run.id in named:
            kept[run.id] = REFERRED
    # What a run that stays speaks of stays with it.
    waiting = [mention for run in (*newest, *(by_id[name] for name in kept)) for mention in run.mentions]
    while waiting:
        name = waiting.pop()
        if name in by_id and name not in kept:
            kept[name] = REFERRED
            waiting += by_id[name].mentions
    return PruningDecision([run.id for run in newest], kept, [run.id for run in older if run.id not in kept])


def sentence(decision: PruningDecision, failed: int, cluster: str) -> str:
    """What was kept, and how many were removed; "" where none was to be. failed: how many are still there."""
    if not decision.removed:
        return ""
    reasons = list(decision.kept.values())
    others = ", ".join(
        f"{reasons.count(reason)} {reason}" for reason in (REFERRED, NOT_OVER, FOREIGN) if reason in reasons
    )
    more = f", and of the older ones {others}" if others else ""
    left = f" ({failed} could not be removed)" if failed else ""
    removed = plural(len(decision.removed) - failed, "run")
    return (
        f"Artifacts of {cluster}: {removed} removed{left}; kept are the newest {len(decision.newest)}{more} ({OPTION})"
    )
