"""Every file in cases/kept describes a sequence of runs on one cluster, and how each run compares to the earlier ones.

smoke: measurements. ranks: [node, local rank, GPU UUID, GEMM rate] of each rank. finds: expected findings. kept: runs
that the history of the accepted state contains afterwards.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import baseline, reports
from muster.acceptance.metrics import metrics

NODES = {"node1": 2, "node2": 2}


def reports_of(backend: str, mode: str, settings: list[str]) -> reports.Reports:
    plan = a_plan(NODES, backend=backend, entry={"argv": ["torchrun", "acceptance.pyz", *settings]})
    return reports.read(plan, [], mode, ("train",), reports.Bounds())


def smoke_of(run: dict[str, Any]) -> dict[str, Any]:
    smoke = {"world_size": 4, **run.get("smoke", {})}
    if "ranks" in run:
        names = ("rank", "node", "local_rank", "gpu_uuid", "gemm_tflops")
        said = [dict(zip(names, (rank, *one), strict=True)) for rank, one in enumerate(run["ranks"])]
        smoke["device"] = {"ranks": said}
        world = {"facts": {"versions": run.get("versions", {})}}
        smoke["ranks"] = [{**one, "stages": {"world": world}} for one in said]
    return smoke


@cases(__file__, "kept")
def test_runs_update_the_accepted_state_as_expected(case: dict[str, Any]) -> None:
    book: Any = copy.deepcopy(case.get("book", {}))
    for number, run in enumerate(case["runs"], 1):
        for _ in range(run.get("times", 1)):
            seen = reports_of(run.get("backend", "nccl"), run.get("mode", "quick"), run.get("settings", []))
            date = f"2026-11-{number:02}T10:00:00+00:00"
            past = baseline.AcceptanceHistory(
                book, f"run{number}", date, run.get("accept", False), run.get("severity", "warn"), run.get("looks", {})
            )
            settled = baseline.settle(seen, smoke_of(run), past, run.get("wrong", []))
            book = settled.book or book
        found = [f"{one.id} {one.status} {one.node}: {one.summary}" for one in settled.findings]
        assert found == run["finds"], f"run {number}"
        if "kept" in run:
            state = baseline.state_of(book, baseline.layout_of(seen))
            assert [one["run"] for one in state["history"]] == run["kept"], f"run {number}"
        if "note" in run:
            assert settled.note == run["note"]


@pytest.mark.parametrize(
    ("kind", "backend", "values", "bound"),
    [
        ("gemm", "nccl", [], 0.1),
        ("gemm", "nccl", [50] * 6, 0.05),
        ("gemm", "nccl", [50, 52, 48, 51, 49, 50], 8 * 1.4826 * 1 / 50),
        ("gemm", "nccl", [50, 90, 20, 70, 30, 60], 0.8),
        ("samples", "gloo", [100.0] * 5, 0.8),
        ("samples", "gloo", [100.0] * 6, 0.5),
        ("latency", "gloo", [1.0] * 6, None),
    ],
)
def test_tolerance_follows_the_earlier_spread(
    kind: str, backend: str, values: list[float], bound: float | None
) -> None:
    assert baseline.bound_of(kind, backend, values) == (None if bound is None else pytest.approx(bound))


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1])
def test_normal_scatter_on_a_healthy_cluster_produces_no_finding(spread: float) -> None:
    """Simulate 200 runs with 40 CPU measurements each, which vary as much as on a busy machine."""
    chance = random.Random(7)
    seen, book = reports_of("gloo", "quick", []), None
    told = 0
    for number in range(200):
        ranks = [[f"node{1 + place // 20}", place, "", 1.0 * chance.gauss(1, spread)] for place in range(40)]
        past = baseline.AcceptanceHistory(book or {}, f"run{number}")
        settled = baseline.settle(seen, smoke_of({"ranks": ranks}), past, [])
        told += sum(one.status != "pass" for one in settled.findings)
        book = settled.book or book
    assert told == 0


@pytest.mark.parametrize("value", [None, True, "fast", [], {}, float("nan"), float("inf"), -1, 0, 10**400])
def test_invalid_measurements_are_ignored(value: Any) -> None:
    rank = {"rank": 0, "node": "node1", "local_rank": 0, "gemm_tflops": value, "ms": value}
    points = [{"bytes": value, "seconds": value, "busbw": value}, value]
    smoke = {
        "world_size": value,
        "samples_per_second": value,
        "device": {"ranks": [rank, value]},
        "stragglers": {"ranks": value},
        "bandwidth": {"curves": [{"collective": value, "level": "all", "points": points}, value]},
        "scaling": value,
    }
    assert metrics(smoke) == {}
    assert metrics(dict.fromkeys(smoke, value)) == {}


def test_metrics_are_extracted_from_a_run() -> None:
    points = [
        {"bytes": 8, "seconds": 0.00002, "algbw": 0.01, "busbw": 0.01},
        {"bytes": 1 << 20, "seconds": 0.01, "algbw": 10, "busbw": 15.5},
    ]
    rank = {"rank": 3, "node": "node2", "local_rank": 1, "gpu_uuid": "GPU-b"}
    found = metrics(
        {
            "world_size": 4,
            "samples_per_second": 812.5,
            "device": {"ranks": [{**rank, "gemm_tflops": 400, "memory_gbps": 2900, "h2d_gbps": 50}]},
            "stragglers": {"ranks": [{**rank, "ms": 12.5}]},
            "bandwidth": {
                "curves": [
                    {"collective": "all_reduce", "level": "across", "points": points},
                    {"collective": "all_reduce", "level": "node", "node": "node1", "points": points},
                ]
            },
            "scaling": {"efficiency": 0.93},
        }
    )
    assert {key: (one.where, one.node, one.value) for key, one in found.items()} == {
        "gemm node2/1": ("rank 3 (node2, local rank 1, GPU-b)", "node2", 400.0),
        "memory node2/1": ("rank 3 (node2, local rank 1, GPU-b)", "node2", 2900.0),
        "host_to_device node2/1": ("rank 3 (node2, local rank 1, GPU-b)", "node2", 50.0),
        "busbw all_reduce across": ("all_reduce across the nodes", "", 15.5),
        "latency all_reduce across": ("all_reduce across the nodes", "", 20.0),
        "busbw all_reduce node node1": ("all_reduce inside node1", "node1", 15.5),
        "latency all_reduce node node1": ("all_reduce inside node1", "node1", 20.0),
        "compute node2/1": ("rank 3 (node2, local rank 1, GPU-b)", "node2", 12.5),
        "samples all": ("all 4 ranks", "", 812.5),
        "efficiency all": ("all 4 ranks", "", 0.93),
    }
