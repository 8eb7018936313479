"""Decides which runs of a cluster are kept if the number of kept runs is limited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OPTION = "cluster_artifacts_keep"
# Names that Muster writes into the folder of a run. Any other file belongs to the user, such as results or notes.
OWN = frozenset(
    (
        *("run.json", "verdict.json", "inspect.json", "network.json", "rails.json", "plan.json", "attempts.json"),
        *("smoke.json", "comparison.json", "shared_data.json", "diagnosis.json", "evidence.json", "drift.json"),
        *("drift.log", "repair.log", "report.html", "junit.xml", "health", "logs", "evidence"),
    )
)
# Later runs (status, acceptance test, diagnose) read the newest run that has the file.
NEWEST_WITH = ("plan.json", "smoke.json", "health", "drift.json", "rails.json", "comparison.json")
NOT_OVER = "possibly still running"
REFERRED = "still referenced"
FOREIGN = "with files not written by Muster"


@dataclass(frozen=True)
class KeptRun:
    """A run whose folder is present. over: whether the run and all its launches have finished. names: the files in the
    run's folder. mentions: other runs that these files name. own: whether the folder belongs to the user and is not a
    link."""

    id: str
    over: bool
    names: Collection[str]
    mentions: Collection[str] = ()
    own: bool = True


@dataclass(frozen=True)
class PruningDecision:
    """Which runs to keep and which to remove. kept: older runs that are kept, each with the reason."""

    newest: Sequence[str]
    kept: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()


def decide(runs: Sequence[KeptRun], most: int, named: Collection[str]) -> PruningDecision:
    """Decide which runs to keep. runs: newest first. most: number of newest runs to keep, 0 for all. named: runs that
    `latest` or the accepted state references."""
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
    # Runs that a kept run references are kept too.
    waiting = [mention for run in (*newest, *(by_id[name] for name in kept)) for mention in run.mentions]
    while waiting:
        name = waiting.pop()
        if name in by_id and name not in kept:
            kept[name] = REFERRED
            waiting += by_id[name].mentions
    return PruningDecision([run.id for run in newest], kept, [run.id for run in older if run.id not in kept])


def sentence(decision: PruningDecision, failed: int, cluster: str) -> str:
    """Return how many runs were removed and kept; "" if none had to be removed. failed: runs that could not be
    removed."""
    if not decision.removed:
        return ""
    reasons = list(decision.kept.values())
    others = ", ".join(
        f"{reasons.count(reason)} {reason}" for reason in (REFERRED, NOT_OVER, FOREIGN) if reason in reasons
    )
    more = f", and older runs: {others}" if others else ""
    left = f" ({failed} could not be removed)" if failed else ""
    removed = plural(len(decision.removed) - failed, "run")
    return f"Artifacts of {cluster}: {removed} removed{left}; kept: the newest {len(decision.newest)}{more} ({OPTION})"
