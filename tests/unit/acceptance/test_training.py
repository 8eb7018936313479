"""Every file in cases/training contains the reports of a training stage, as differences from a successful run, and the
findings.

stage: name. nproc: ranks per node (default: two nodes with two ranks each). change: facts that differ, by rank (list
elements by index); null means not reported. expect: all findings except passes, and all skipped checks.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import agreement, checkpoint, equality, precision, reports, sampling
from muster.verdict.check import collect

SUBJECTS = {subject.STAGE: subject for subject in (equality, sampling, checkpoint, precision)}
SAMPLES = 4  # of each rank


def good_equality(rank: int, world_size: int) -> dict[str, Any]:
    run = {
        "start": "5a",
        "digests": ["d1", "d2"],
        "plan": "all",
        "trained": f"of {rank}",
        "expected": f"of {rank}",
        "of": rank,
        "worst": {"parameter": "0.weight", "excess": 3e-7, "absolute": 4e-17, "relative": 5e-16},
        "own": {"parameter": "its own loss at step 1", "excess": 0.0, "absolute": 0.0, "relative": 0.0},
        "loss": {"parameter": "loss", "excess": 0.0, "absolute": 0.0, "relative": 0.0},
    }
    ways = [("float64", 1), ("float32", 2)]
    return {"runs": [{"dtype": dtype, "accumulation": parts, **copy.deepcopy(run)} for dtype, parts in ways]}


def shard(rank: int, world_size: int, case: sampling.SamplerCase) -> dict[str, Any]:
    """Return a shard in the format that DistributedSampler creates."""
    order = list(range(case.size))
    if case.shuffle:
        random.Random(case.epoch).shuffle(order)
    share = case.size // world_size if case.drop_last else -(-case.size // world_size)
    padded = (order + order)[: share * world_size]
    return {**case._asdict(), "indices": padded[rank::world_size]}


def good_sampling(rank: int, world_size: int) -> dict[str, Any]:
    size = SAMPLES * world_size + 1
    listed = [sampling.SamplerCase(size, drop, True, epoch) for drop in (False, True) for epoch in (0, 1)]
    listed.append(sampling.SamplerCase(size, False, False, 0))
    counted = {"size": size, "total": size, "correct": len(range(0, size, 3)), "with_padding": size + world_size - 1}
    return {"shards": [shard(rank, world_size, case) for case in listed], "repeats": True, "evaluation": counted}


def good_checkpoint(rank: int, world_size: int) -> dict[str, Any]:
    return {
        "shared": rank < 2,
        "bytes": 473000,
        "torn": "checkpoint-000004.pt",
        "used": "checkpoint-000003.pt",
        "refused": ["checkpoint-000004.pt has 9 of 18 bytes"],
        "problem": "",
        "resumed_at": 3,
        "bitwise": True,
        "must": True,
        "worst": {"parameter": "0.weight", "excess": 0.0, "absolute": 0.0, "relative": 0.0},
        "other": [],
        "parameters_sha256": "abc",
    }


def good_precision(rank: int, world_size: int) -> dict[str, Any]:
    mixed = {"dtype": "float16", "losses": [2.301, 2.101, 1.301, 1.1], "scale": 65536.0, "lost_at": None}
    return {
        "steps": 4,
        "float32": {"dtype": "float32", "losses": [2.3, 2.1, 1.3, 1.1]},
        "mixed": [{**mixed, "parameters_sha256": "abc"}],
    }


GOOD = {
    "equality": good_equality,
    "sampling": good_sampling,
    "checkpoint": good_checkpoint,
    "precision": good_precision,
}


def changed(facts: Any, change: Any) -> Any:
    """Return the facts with the changes applied."""
    if isinstance(facts, list) and isinstance(change, dict):
        return [changed(value, change[place]) if place in change else value for place, value in enumerate(facts)]
    if not isinstance(facts, dict) or not isinstance(change, dict):
        return change
    whole = {**facts, **{name: changed(facts.get(name), value) for name, value in change.items()}}
    return {name: value for name, value in whole.items() if name not in change or change[name] is not None}


def reports_of(stage: str, nproc: dict[str, int], change: dict[int, Any]) -> reports.Reports:
    plan = a_plan(nproc)
    events = []
    for rank, place in reports.places_of(plan).items():
        facts = changed(GOOD[stage](rank, plan.world_size), change.get(rank, {}))
        report = {"event": "stage", "stage": stage, "status": "ok", "seconds": 1.0, "why": "", "facts": facts}
        events.append({**report, "from_rank": rank, "from_node": place.node})
    return reports.read(plan, events, "quick", (stage,), reports.Bounds())


@cases(__file__, "training")
def test_training_reports_produce_the_expected_findings(case: dict[str, Any]) -> None:
    seen = reports_of(case["stage"], case.get("nproc", {"node1": 2, "node2": 2}), case.get("change", {}))
    judged = collect(SUBJECTS[case["stage"]].judge(seen))
    found = [f"{f.id} {f.status} {f.node}: {f.summary}" for f in judged.findings if f.status != "pass"]
    assert found + [f"{skip['id']} skipped: {skip['why']}" for skip in judged.skipped] == case["expect"]


@pytest.mark.parametrize("stage", GOOD)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_successful_run_produces_no_finding(stage: str, ranks: int) -> None:
    judged = collect(SUBJECTS[stage].judge(reports_of(stage, {"node1": ranks, "node2": 1}, {})))
    assert judged.clean
    assert {finding.id for finding in judged.findings} == {check.id for check in SUBJECTS[stage].CHECKS}


@pytest.mark.parametrize("stage", GOOD)
@pytest.mark.parametrize("strange", [None, 7, "text", float("nan"), [1], [[]], [{}], -(2**70)])
def test_values_of_another_type_raise_no_exception_and_never_pass(stage: str, strange: Any) -> None:
    """Replace each value of a rank's facts in turn, at any depth."""
    facts = GOOD[stage](1, 4)
    for path in paths_of(facts):
        change: Any = strange
        for name in reversed(path):
            change = {name: change}
        judged = collect(SUBJECTS[stage].judge(reports_of(stage, {"node1": 2, "node2": 2}, {1: change})))
        assert all(isinstance(finding.summary, str) and len(finding.summary) < 1000 for finding in judged.findings)
    judged = collect(SUBJECTS[stage].judge(reports_of(stage, {"node1": 2}, {1: dict.fromkeys(facts, strange)})))
    assert "pass" not in {finding.status for finding in judged.findings}


def paths_of(facts: Any) -> list[tuple[Any, ...]]:
    if isinstance(facts, dict):
        return [(name, *rest) for name, value in facts.items() for rest in ((), *paths_of(value))]
    if isinstance(facts, list):
        return [(place, *rest) for place, value in enumerate(facts) for rest in ((), *paths_of(value))]
    return []


def test_ranks_are_grouped_by_value_with_the_largest_group_first() -> None:
    assert agreement.by_value({0: "a", 1: "b", 2: "b", 3: "a", 4: "b"}) == [[1, 2, 4], [0, 3]]


def test_measured_values_list_the_nodes_that_see_the_folder() -> None:
    seen = reports_of("checkpoint", {"node1": 2, "node2": 1}, {})
    assert checkpoint.measured(seen) == {"bytes": 473000.0, "shared": {"node1": True, "node2": False}}
