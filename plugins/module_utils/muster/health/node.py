"""One node's health: every judge over the same facts, what was skipped and why, and the verdict of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.check import Check, collect
from ..verdict.finding import FindingShape, Skipped, Verdict, add_up
from . import (
    collective,
    environment,
    ethernet,
    fabric_manager,
    gpu_memory,
    gpu_settings,
    gpu_use,
    gpus,
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Judged, Said

CODE_MISSING = Check(
    "job.code.missing",
    reads="the paths in health_code",
    fires="fail: one is not there on this node",
    fix="Copy it to the same path on every node",
)
HEALTH = Check(
    "node.health",
    reads="everything that nccl_health looks at on the node",
    fires="never: it says that nothing stands against the node",
    fix="Nothing",
)
CHECKS = (CODE_MISSING, HEALTH)
JUDGES = (host, limits, software, environment, jobs, ras, ethernet, rdma, pci, kernel_log, collective)
OF_GPUS = (gpus, gpu_memory, gpu_settings, gpu_use, nvlink, fabric_manager)


class Answer(TypedDict):
    """What is found on a node. A result with `skipped` in it would be that of a skipped task to Ansible."""

    findings: list[FindingShape]
    verdict: Verdict


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Answer:
    judged = collect(one for each in (*(one.judge for one in JUDGES), _gpus, code) for one in each(facts, request))
    looked = looked_at(judged)
    if judged.clean:
        summary = f"nothing stands against it, of {len(looked)} things looked at"
        judged.findings.append(HEALTH.passed(request["node"], summary))
    verdict = add_up(judged.findings, skipped=judged.skipped, ran=looked)
    return Answer(findings=verdict["findings"], verdict=verdict)


def looked_at(judged: Judged) -> list[str]:
    """Every id that could have been found. What is skipped as "gpu" is skipped with all that begin so."""
    every = {check.id for each in (*JUDGES, *OF_GPUS) for check in each.CHECKS}
    left_out = tuple(entry["id"] for entry in judged.skipped)
    ran = {name for name in every if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    # What is skipped in one place may be found in another.
    return sorted(ran | {finding.id for finding in judged.findings})


def _gpus(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    return gpus.judge(facts["gpu"], request)


def code(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    for path, seen in facts["code"].items():
        if seen["digest"]:
            continue
        if seen["why"] == "it is not there":
            yield CODE_MISSING.fail(request["node"], f"{path} (health_code) is not there")
        else:
            yield Skipped(id="versions.code", why=f"{path}: {seen['why']}")
