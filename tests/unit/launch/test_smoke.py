"""Every file in cases/smoke is what the ranks of a smoke launch reported, as far as it differs from a good one.

nproc: ranks by node, [2, 2] where it is left out. change: by rank and event, what it says otherwise; null: it does not
say it. expect.findings: all that are not `pass`.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.launch import smoke

SIZES = (1, 1023)


def plan_of(nproc: dict[str, int]) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    first = 0
    for node_rank, (node, count) in enumerate(nproc.items()):
        nodes.append({"node": node, "node_rank": node_rank, "ranks": list(range(first, first + count)), "nproc": count})
        first += count
    return {"launch_id": "20260101-120000-abcd", "backend": "gloo", "world_size": first, "nodes": nodes}


def brute_force(size: int, world_size: int) -> int:
    return sum((place % 997 + 1) * (rank + 1) for rank in range(world_size) for place in range(size))


def events_of(plan: dict[str, Any], change: dict[int, Any]) -> list[dict[str, Any]]:
    events = []
    world_size = plan["world_size"]
    for rank, (node, local) in smoke.planned_ranks(plan).items():
        node_rank = next(entry["node_rank"] for entry in plan["nodes"] if entry["node"] == node)
        said: dict[str, dict[str, Any]] = {
            "hello": {
                "rank": rank,
                "local_rank": local,
                "node_rank": node_rank,
                "world_size": world_size,
                "backend": "gloo",
                "machine": f"boot-{node}",
            },
            "result": {
                "rank": rank,
                "all_reduce": [{"size": n, "sum": brute_force(n, world_size), "mismatches": 0} for n in SIZES],
                "parameters_sha256": "abc",
                "loss_first": 2.3,
                "loss_last": 1.1,
                "samples_per_second": 100.0,
            },
        }
        for event, facts in said.items():
            changed = change.get(rank, {}).get(event, {})
            if changed is None:
                continue
            kept = {name: value for name, value in {**facts, **changed}.items() if value is not None}
            events.append({"event": event, **kept, "from_rank": rank, "from_node": node})
    return events


@cases(__file__, "smoke")
def test_smoke(case: dict[str, Any]) -> None:
    plan = plan_of(case.get("nproc", {"node1": 2, "node2": 2}))
    events = events_of(plan, case.get("change", {}))
    launch = {"findings": case.get("launch", [])}
    verdict = smoke.verdict(plan, launch, events, case.get("loss_ratio", 0.9))
    found = [f for f in verdict["findings"] if f["status"] != "pass" and f["id"].startswith("smoke.")]
    assert [f"{f['id']} {f['status']} {f['node']}: {f['summary']}" for f in found] == case["expect"]["findings"]
    assert verdict["status"] == case["expect"]["status"]
    if "summary" in case["expect"]:
        assert verdict["summary"] == case["expect"]["summary"]
    assert smoke.measured(plan, events)["world_size"] == plan["world_size"]


@pytest.mark.parametrize("size", [0, 1, 996, 997, 998, 1994, 4000])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_expected_sum(size: int, world_size: int) -> None:
    assert smoke.expected_sum(size, world_size) == brute_force(size, world_size)


def test_measured_adds_up_what_was_reported() -> None:
    plan = plan_of({"node1": 2})
    step = {"event": "step", "step": 1, "loss": 2.0, "samples_per_second": 9.0, "from_rank": 0, "from_node": "node1"}
    facts = smoke.measured(plan, [*events_of(plan, {1: {"result": None}}), step])
    assert facts["samples_per_second"] == 100.0
    assert facts["loss_last"] == 1.1
    assert facts["steps"] == [{"step": 1, "loss": 2.0, "samples_per_second": 9.0}]
    assert [rank["machine"] for rank in facts["ranks"]] == ["boot-node1", "boot-node1"]
