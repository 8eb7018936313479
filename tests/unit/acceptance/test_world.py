"""Every file in cases/world contains the ranks' reports about layout, machines, GPUs and versions, and the findings.

nproc: ranks per node (default: two nodes with two ranks each). backend: nccl by default. change: facts that differ from
those of a healthy rank, by rank; null means not reported. silent: ranks that did not report. expect: all findings and
skipped checks; passes only of checks other than layout and machines.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import reports, world
from muster.verdict.finding import Finding

STATED = ("smoke.layout pass", "smoke.machines pass")


def reports_of(case: dict[str, Any]) -> reports.Reports:
    backend = case.get("backend", "nccl")
    plan = a_plan(case.get("nproc", {"node1": 2, "node2": 2}), backend=backend)
    events = []
    for rank, place in reports.places_of(plan).items():
        if rank in case.get("silent", ()):
            continue
        facts = {
            "rank": rank,
            "local_rank": place.local_rank,
            "node_rank": place.node_rank,
            "world_size": plan.world_size,
            "backend": backend,
            "machine": place.node,
            "device": "NVIDIA H100 80GB HBM3",
            "gpu_uuid": f"GPU-{place.node}-{place.local_rank}",
            "gpu_index": place.local_rank,
            "used_index": place.local_rank,
            "used_uuid": f"GPU-{place.node}-{place.local_rank}",
            **case.get("change", {}).get(rank, {}),
        }
        usual = {"torch": "2.13.0+cu126", "nccl": "2.27.5", "cuda": "12.6", "python": "3.12.3", "driver": "580.95.05"}
        facts["versions"] = {**usual, **said} if isinstance(said := facts.get("versions", {}), dict) else said
        kept = {name: value for name, value in facts.items() if value is not None}
        events.append({"event": "stage", "stage": "world", "status": "ok", "facts": kept, "from_rank": rank})
    return reports.read(plan, events, "quick", ("world",), reports.Bounds())


def shown(seen: reports.Reports) -> list[str]:
    return [
        f"{one.id} {one.status} {one.node}: {one.summary}" if isinstance(one, Finding) else f"{one['id']}: {one['why']}"
        for one in world.judge(seen)
    ]


@cases(__file__, "world")
def test_world_reports_produce_the_expected_findings(case: dict[str, Any]) -> None:
    assert [line for line in shown(reports_of(case)) if not line.startswith(STATED)] == case["expect"]


@pytest.mark.parametrize(
    "junk", [None, True, "", "x", -1, 1.5, float("nan"), [None], {"torch": []}, {"torch": 3}, 10**400]
)
def test_invalid_facts_raise_no_exception_and_never_pass(junk: Any) -> None:
    names = ("device", "gpu_uuid", "gpu_index", "used_index", "used_uuid", "versions")
    said = shown(reports_of({"change": {3: dict.fromkeys(names, junk)}}))
    own = [line for line in said if not line.startswith(STATED)]
    assert not [line for line in own if line.split()[1] == "pass" and junk not in ("x", "")], own
