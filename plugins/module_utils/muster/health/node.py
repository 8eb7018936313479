"""One node's health: every judge over the same facts, what was skipped and why, and the verdict of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.check import Check, collect, skip_all
from ..verdict.finding import FindingShape, Verdict, add_up
from . import gpu
from .facts import facts as facts_of
from .subjects import has_facts, subjects
from .traits import traits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import CheckResults, Said

HEALTH = Check(
    "node.health",
    seen="stand-in",
    reads="everything that nccl_health looks at on the node",
    fires="never: it says that nothing stands against the node",
    fix="Nothing is to be done",
)
CHECKS = (HEALTH,)


class NodeFindings(TypedDict):
    """What is found on a node. A result with `skipped` in it would be that of a skipped task to Ansible."""

    findings: list[FindingShape]
    verdict: Verdict


class NodeHealth(NodeFindings):
    """What nccl_health returns of a node."""

    facts: dict[str, Any]
    traits: dict[str, str | None]


def judge_looks(looks: Mapping[str, Any], request: Mapping[str, Any]) -> NodeHealth:
    """looks: what muster_node/looks/health.py brought back. request: the options of nccl_health."""
    facts = facts_of(looks, request)
    return NodeHealth(facts=facts, traits=traits(facts, request), **judge(facts, request))


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> NodeFindings:
    judged = collect(one for name in subjects() for one in judge_subject(name, facts, request))
    judged.findings.extend(collect(gpu.conclude(judged, facts, request)).findings)
    looked = looked_at(judged)
    if judged.clean:
        summary = f"nothing stands against it, of {len(looked)} things looked at"
        judged.findings.append(HEALTH.passed(request["node"], summary))
    verdict = add_up(judged.findings, skipped=judged.skipped, ran=looked)
    return NodeFindings(findings=verdict["findings"], verdict=verdict)


def judge_subject(name: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    subject = subjects()[name]
    if has_facts(name) and name not in facts:
        yield from skip_all(subject.CHECKS, "it was not looked at")
    else:
        yield from subject.judge(facts, request)


def looked_at(judged: CheckResults) -> list[str]:
    """Every id that could have been found. What is skipped as "gpu" is skipped with all that begin so."""
    every = {check.id for subject in subjects().values() for check in subject.CHECKS}
    left_out = tuple(entry["id"] for entry in judged.skipped)
    ran = {name for name in every if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    # What is skipped in one place may be found in another.
    return sorted(ran | {finding.id for finding in judged.findings})
