"""One node's health: every judge over the same facts, what was skipped and why, and the verdict of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import Finding, add_up
from . import (
    collective,
    environment,
    ethernet,
    fabric_manager,
    gpu,
    gpu_memory,
    gpu_settings,
    gpu_use,
    host,
    jobs,
    kernel_log,
    limits,
    nvlink,
    pci,
    ras,
    rdma,
    software,
)
from .facts import facts as facts_of
from .traits import traits

if TYPE_CHECKING:
    from collections.abc import Mapping

FINDINGS = {
    "job.code.missing": Entry(
        reads="the paths in health_code",
        fires="fail: one is not there on this node",
        fix="Copy it to the same path on every node",
    ),
    "node.health": Entry(
        reads="everything that nccl_health looks at on the node",
        fires="never: it says that nothing stands against the node",
        fix="Nothing",
    ),
}
JUDGES = (host, limits, software, environment, jobs, ras, ethernet, rdma, pci, kernel_log, collective)
OF_GPUS = (gpu, gpu_memory, gpu_settings, gpu_use, nvlink, fabric_manager)


def judge_looks(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {facts, traits, findings, verdict}; looks: what muster_node/looks/health.py brought back."""
    facts = facts_of(looks, request)
    return {"facts": facts, "traits": traits(facts, request), **judge(facts, request)}


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {findings, verdict}. A result with `skipped` in it would be that of a skipped task to Ansible."""
    findings: list[Finding] = []
    skipped: list[dict[str, str]] = []
    for each in (*(one.judge for one in JUDGES), _gpus, code):
        found, left_out = each(facts, request)
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
    every = {name for each in (*JUDGES, *OF_GPUS) for name in (*each.FINDINGS, *getattr(each, "ALSO", ()))}
    left_out = tuple(entry["id"] for entry in skipped)
    ran = {name for name in every if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    # What is skipped in one place may be found in another.
    return sorted(ran | {finding.id for finding in findings})


def _gpus(facts: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[list[Finding], list[dict[str, str]]]:
    return gpu.judge(facts["gpu"], request)


def code(facts: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[list[Finding], list[dict[str, str]]]:
    findings, skipped = [], []
    for path, seen in facts["code"].items():
        if seen["digest"]:
            continue
        if seen["why"] == "it is not there":
            fix = {"text": "Copy it to the same path on every node"}
            findings.append(
                Finding("job.code.missing", "fail", request["node"], f"{path} (health_code) is not there", fix=fix)
            )
        else:
            skipped.append({"id": "versions.code", "why": f"{path}: {seen['why']}"})
    return findings, skipped
