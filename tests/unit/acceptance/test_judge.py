"""Every file in cases/judge contains the reports of a smoke test, as differences from those of a successful one.

nproc: ranks per node (default: two nodes with two ranks each). change: facts that differ, by rank and stage; null means
that nothing was reported. expect.findings: all findings except passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import baseline, collectives, judge, reports, summary

if TYPE_CHECKING:
    from muster.launch.planned import LaunchPlan

SIZES = (1, 1023)


def brute_force(size: int, world_size: int) -> int:
    return sum((place % 997 + 1) * (rank + 1) for rank in range(world_size) for place in range(size))


def events_of(plan: LaunchPlan, change: dict[int, Any]) -> list[dict[str, Any]]:
    events = []
    world_size = plan.world_size
    for rank, place in reports.places_of(plan).items():
        said: dict[str, dict[str, Any]] = {
            "world": {
                "rank": rank,
                "local_rank": place.local_rank,
                "node_rank": place.node_rank,
                "world_size": world_size,
                "backend": "gloo",
                "machine": f"boot-{place.node}",
                "versions": {"torch": "2.13.0+cpu", "python": "3.12.3", "cuda": "", "nccl": ""},
            },
            "collectives": {
                "all_reduce": [{"size": n, "sum": brute_force(n, world_size), "mismatches": 0} for n in SIZES],
            },
            "train": {
                "parameters_sha256": "abc",
                "loss_first": 2.3,
                "loss_last": 1.1,
                "samples_per_second": 100.0,
            },
        }
        for stage, facts in said.items():
            changed = change.get(rank, {}).get(stage, {})
            if changed is None:
                continue
            kept = {name: value for name, value in {**facts, **changed}.items() if value is not None}
            report = {"event": "stage", "stage": stage, "status": "ok", "seconds": 1.0, "why": "", "facts": kept}
            events.append({**report, "from_rank": rank, "from_node": place.node})
    return events


def reports_of(plan: LaunchPlan, events: list[dict[str, Any]], loss_ratio: float = 0.9) -> reports.Reports:
    bounds = reports.Bounds(loss_ratio=loss_ratio)
    return reports.read(plan, events, "quick", ("world", "collectives", "train"), bounds)


@cases(__file__, "judge")
def test_smoke_reports_produce_the_expected_verdict(case: dict[str, Any]) -> None:
    plan = a_plan(case.get("nproc", {"node1": 2, "node2": 2}))
    events = events_of(plan, case.get("change", {}))
    launch = {"findings": case.get("launch", [])}
    seen = reports_of(plan, events, case.get("loss_ratio", 0.9))
    verdict = judge.concluded(seen, launch, events).verdict
    found = [f for f in verdict["findings"] if f["status"] != "pass" and f["id"].startswith("smoke.")]
    assert [f"{f['id']} {f['status']} {f['node']}: {f['summary']}" for f in found] == case["expect"]["findings"]
    assert verdict["status"] == case["expect"]["status"]
    assert verdict["summary"] == case["expect"]["summary"]
    assert judge.measured(seen, events)["world_size"] == plan.world_size


def test_summary_of_a_healthy_run_mentions_its_acceptance() -> None:
    plan = a_plan({"node1": 1, "node2": 1})
    events = events_of(plan, {})
    verdict, measured, book = judge.concluded(
        reports_of(plan, events), {"findings": []}, events, baseline.AcceptanceHistory(run="r")
    )
    assert verdict["summary"] == (
        "2 ranks on 2 nodes trained together (gloo): 200 samples/s, 9 checks in 3 stages and 3 s (quick);"
        " saved as the accepted state"
    )
    assert measured["accepted"] == {"run": "r", "date": "", "accepted": True}
    assert book is not None
    assert list(book["states"][0]["values"]) == ["samples all"]


@pytest.mark.parametrize(
    ("change", "launch"),
    [
        ({1: {"train": {"parameters_sha256": "x"}}}, []),
        ({1: {"train": None}}, []),
        ({}, [{"id": "launch.taken", "status": "warn", "node": "node2", "summary": "another launch shares it"}]),
    ],
)
def test_unhealthy_run_does_not_become_the_accepted_state(change: dict[int, Any], launch: list[dict[str, Any]]) -> None:
    plan = a_plan({"node1": 1, "node2": 1})
    events = events_of(plan, change)
    for accept in (False, True):
        past = baseline.AcceptanceHistory(run="r", accept=accept)
        verdict, _, book = judge.concluded(reports_of(plan, events), {"findings": launch}, events, past)
        assert book is None
        assert [one["status"] for one in verdict["findings"] if one["id"] == "smoke.accepted"] == ["fail"] * accept


def test_summary_shows_at_most_three_findings() -> None:
    plan = a_plan({f"node{number}": 1 for number in range(1, 6)})
    events = events_of(plan, {rank: {"world": {"backend": f"b{rank}"}} for rank in range(5)})
    verdict = judge.concluded(reports_of(plan, events), {"findings": []}, events).verdict
    assert verdict["summary"] == (
        "the launch finished, but the result is wrong. node1: rank 0: backend is b0 instead of gloo; node2:"
        " rank 1: backend is b1 instead of gloo; node3: rank 2: backend is b2 instead of gloo; and 2 more"
    )


def test_summary_omits_stages_that_were_not_run() -> None:
    plan = a_plan({"node1": 2})
    events = [event for event in events_of(plan, {}) if event["stage"] == "collectives"]
    seen = reports.read(plan, events, "full", ("collectives",), reports.Bounds())
    text = judge.concluded(seen, {"findings": []}, events).verdict["summary"]
    assert text == "2 ranks on 1 node (gloo): 3 checks in 1 stage and 1 s (full)"


def test_summary_shows_the_main_figures() -> None:
    points = [{"bytes": 8, "busbw": 0.1}, {"bytes": 1 << 30, "busbw": 46.2}]
    curves = [{"collective": "all_reduce", "level": level, "points": points} for level in ("all", "across")]
    scaling = {"scaling": {"efficiency": 0.934}}
    assert summary.numbers({"samples_per_second": 812.4, "bandwidth": {"curves": curves}, **scaling}) == [
        "812 samples/s",
        "all-reduce across the nodes 46.2 GB/s",
    ]
    assert summary.numbers(scaling) == ["93 % of linear scaling"]


@pytest.mark.parametrize("size", [0, 1, 996, 997, 998, 1994, 4000])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_expected_sum_equals_the_brute_force_sum(size: int, world_size: int) -> None:
    assert collectives.expected_sum(size, world_size) == brute_force(size, world_size)


def test_measured_values_are_aggregated_over_ranks() -> None:
    plan = a_plan({"node1": 2})
    step = {"event": "step", "step": 1, "loss": 2.0, "samples_per_second": 9.0, "from_rank": 0, "from_node": "node1"}
    events = [*events_of(plan, {1: {"train": None}}), step]
    facts = judge.measured(reports_of(plan, events), events)
    assert facts["samples_per_second"] == 100.0
    assert facts["loss_last"] == 1.1
    assert facts["steps"] == [{"step": 1, "loss": 2.0, "samples_per_second": 9.0}]
    assert [rank["machine"] for rank in facts["ranks"]] == ["boot-node1", "boot-node1"]
    assert list(facts["ranks"][1]["stages"]) == ["world", "collectives"]
