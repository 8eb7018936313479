"""Adds a diagnosis to the verdict of its launch: one finding per reported cause, and a matching summary.

The launch's own findings are kept: the exit of a rank is a fact, whatever its cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch.outcome import CLUSTER
from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import Finding, extended, with_fix
from . import words
from .decide import CONFIRMED, LIKELY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Verdict
    from .case import LaunchCase
    from .decide import Decided
    from .words import Diagnosis, SaidCause

READS = "exits and output of ranks and launchers, node records, and probes after the failure"
CAUSE = Check(
    "launch.cause",
    seen="sandbox",
    reads=READS,
    fires="a check confirms a cause of the failed launch, at the same place as its symptom (fail)",
    fix="See the finding; docs/errors.md lists all causes",
)
LIKELY_CAUSE = Check(
    "launch.cause.likely",
    seen="stand-in",
    reads=READS,
    fires="two independent pieces of evidence or one decisive log line suggest a cause; no check confirms it (warn)",
    fix="See the finding; docs/errors.md lists all causes",
)
UNKNOWN_CAUSE = Check(
    "launch.cause.unknown",
    seen="stand-in",
    reads=READS,
    fires="no check confirms a cause (unknown). The finding lists the remaining candidates",
    fix="Diagnose again with",
    command=playbook("playbooks/diagnose.yml"),
)

CHECKS = (CAUSE, LIKELY_CAUSE, UNKNOWN_CAUSE)


def with_diagnosis(verdict: Verdict, case: LaunchCase, decided: Decided, said: Diagnosis) -> Verdict:
    causes = list(findings_of(said))
    says_more = bool(decided.causes) and not is_the_failure_itself(case, decided)
    return extended(verdict, after=causes, summary=with_fix(causes[0]) if says_more else "")


def is_the_failure_itself(case: LaunchCase, decided: Decided) -> bool:
    """Return whether the cause is identical to the first failure, which the launch's own finding describes in more
    detail."""
    first, _ = case.failures
    return first is not None and not first.cascade and decided.causes[0].place.what == first.summary


def findings_of(said: Diagnosis) -> Iterator[Finding]:
    if not said["causes"]:
        yield unknown(said)
    for one in said["causes"]:
        yield of_cause(one)


def of_cause(one: SaidCause) -> Finding:
    check = CAUSE if one["word"] == CONFIRMED else LIKELY_CAUSE
    judge = check.fail if one["word"] == CONFIRMED else check.warn
    fix = one["fix"]
    more = {"peer": one["peer"]} if one["peer"] else {}
    says = one["says"] if one["word"] == CONFIRMED else f"{LIKELY}: {one['says']}"
    return judge(
        one["node"] or CLUSTER,
        says,
        fix=fix.get("text", ""),
        command=fix.get("command", ""),
        evidence=list(one["proofs"]),
        **more,
    )


def unknown(said: Diagnosis) -> Finding:
    return UNKNOWN_CAUSE.unknown(
        CLUSTER, f"the cause of the failure is {said['parts'][words.CAUSE]}", fix=said["parts"][words.NEXT_STEP]
    )


def named(verdict: Mapping[str, object], participants: Sequence[str]) -> list[str]:
    """Return the participating nodes that a confirmed cause names."""
    findings = verdict.get("findings", [])
    nodes = [one["node"] for one in findings if one["id"] == CAUSE.id] if isinstance(findings, list) else []
    return [name for name in participants if name in nodes]
