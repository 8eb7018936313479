"""Health of one node: passes the same facts to all subjects and computes the verdict."""

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
    reads="all checks of nccl_health on the node",
    fires="never: passes if no check of the node finds a problem",
    fix="No action required",
)
CHECKS = (HEALTH,)


class NodeFindings(TypedDict):
    """Findings of a node. The class has no key `skipped`, because Ansible would treat a result with this key as a
    skipped task."""

    findings: list[FindingShape]
    verdict: Verdict


class NodeHealth(NodeFindings):
    """The result of nccl_health for a node."""

    facts: dict[str, Any]
    traits: dict[str, str | None]


def judge_looks(looks: Mapping[str, Any], request: Mapping[str, Any]) -> NodeHealth:
    """Evaluate a node. looks: the result of muster_node/looks/health.py. request: the options of nccl_health."""
    facts = facts_of(looks, request)
    return NodeHealth(facts=facts, traits=traits(facts, request), **judge(facts, request))


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> NodeFindings:
    judged = collect(one for name in subjects() for one in judge_subject(name, facts, request))
    judged.findings.extend(collect(gpu.conclude(judged, facts, request)).findings)
    ran = checks_run(judged)
    if judged.clean:
        summary = f"no problem found by {len(ran)} checks"
        judged.findings.append(HEALTH.passed(request["node"], summary))
    verdict = add_up(judged.findings, skipped=judged.skipped, ran=ran)
    return NodeFindings(findings=verdict["findings"], verdict=verdict)


def judge_subject(name: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    subject = subjects()[name]
    if has_facts(name) and name not in facts:
        yield from skip_all(subject.CHECKS, "not checked")
    else:
        yield from subject.judge(facts, request)


def checks_run(judged: CheckResults) -> list[str]:
    """Return the ids of all checks that ran. A skip of "gpu" covers every id that starts with "gpu."."""
    every = {check.id for subject in subjects().values() for check in subject.CHECKS}
    left_out = tuple(entry["id"] for entry in judged.skipped)
    ran = {name for name in every if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    # A check that one subject skipped may have a finding of another.
    return sorted(ran | {finding.id for finding in judged.findings})
