"""One node's health: every judge over the same facts, what was skipped and why, and the verdict of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import Finding, add_up
from . import fabric_manager, gpu_memory, gpu_settings, gpu_use, nvlink
from .facts import facts as facts_of
from .subjects import has_facts, subjects
from .traits import traits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

FINDINGS = {
    "node.health": Entry(
        reads="everything that nccl_health looks at on the node",
        fires="never: it says that nothing stands against the node",
        fix="Nothing",
    ),
}
# The subject gpu has its checks in these, too.
OF_GPUS = (gpu_memory, gpu_settings, gpu_use, nvlink, fabric_manager)


def judge_looks(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {facts, traits, findings, verdict}; looks: what muster_node/looks/health.py brought back."""
    facts = facts_of(looks, request)
    return {"facts": facts, "traits": traits(facts, request), **judge(facts, request)}


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {findings, verdict}. A result with `skipped` in it would be that of a skipped task to Ansible."""
    findings: list[Finding] = []
    skipped: list[dict[str, str]] = []
    for name, subject in subjects().items():
        if has_facts(name) and name not in facts:
            skipped += [{"id": each, "why": "it was not looked at"} for each in declared(subject)]
            continue
        found, left_out = subject.judge(facts, request)
        findings += found
        skipped += left_out
    looked = looked_at(findings, skipped)
    if not any(finding.status in ("fail", "warn", "unknown") for finding in findings):
        summary = f"nothing stands against it, of {len(looked)} things looked at"
        findings.append(Finding("node.health", "pass", request["node"], summary))
    verdict = add_up(findings, skipped=skipped, ran=looked)
    return {"findings": verdict["findings"], "verdict": verdict}


def looked_at(findings: list[Finding], skipped: list[dict[str, str]]) -> list[str]:
    """Every id that could have been found. What is skipped as "gpu" is skipped with all that begin so."""
    every = {name for each in (*subjects().values(), *OF_GPUS) for name in declared(each)}
    left_out = tuple(entry["id"] for entry in skipped)
    ran = {name for name in every if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    # What is skipped in one place may be found in another.
    return sorted(ran | {finding.id for finding in findings})


def declared(rules: ModuleType) -> tuple[str, ...]:
    """Every id that a file of rules can find."""
    return (*rules.FINDINGS, *getattr(rules, "ALSO", ()))
