"""Every file in cases/device contains the ranks' reports about devices, stragglers, scaling and a soak test.

nproc: ranks per node (default: two nodes with two ranks each). stages: facts by stage and rank; `all` contains the
defaults of every rank. skipped: reason by stage. points: samples of a soak test, by rank. expect: all findings except
passes, all skipped checks, and the listed part of a stage's `measured`.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases, document_of
from launch_shapes import a_plan
from muster.acceptance import device, reports, scaling, soak, stragglers
from muster.verdict.finding import Finding
from paths import ROOT

SUBJECTS = {subject.STAGE: subject for subject in (device, stragglers, scaling, soak)}
FACTS = (
    *("model", "gpu_uuid", "gemm_tflops", "gemm_checked", "gemm_wrong", "memory_gbps", "h2d_gbps", "d2h_gbps", "alone"),
    *("smi", "p2p", "dcgm", "compute_ms", "compute_cpu_ms", "data_ms", "throttled_part", "shares_cores", "quota"),
    *("load", "cores", "together", "gradient_bytes", "batch", "rounds", "ended", "differences"),
)
TABLE = document_of(ROOT / "roles/ddp_smoke/files/gpu_rates.yml")


def reports_of(case: dict[str, Any]) -> reports.Reports:
    plan = a_plan(case.get("nproc", {"node1": 2, "node2": 2}), backend="nccl")
    places = reports.places_of(plan)
    events = []
    for stage, said in case.get("stages", {}).items():
        for rank, place in places.items():
            facts = said.get(rank, {})
            if facts is not None:
                whole = {name: value for name, value in {**said.get("all", {}), **facts}.items() if value is not None}
                event = {"event": "stage", "stage": stage, "status": "ok", "facts": whole}
                events.append({**event, "from_rank": rank, "from_node": place.node})
    for stage, why in case.get("skipped", {}).items():
        events += [
            {"event": "stage", "stage": stage, "status": "skipped", "why": why, "facts": {}, "from_rank": rank}
            for rank in places
        ]
    for rank, points in case.get("points", {}).items():
        events += [{"event": "soak", "rank": 99, "from_rank": rank, **point} for point in points]
    bounds = reports.Bounds(gpu_rates=TABLE, scaling_floor=case.get("scaling_floor", 0.0))
    wanted = (*case.get("stages", {}), *case.get("skipped", {}))
    return reports.read(plan, events, case.get("mode", "full"), wanted, bounds)


@cases(__file__, "device")
def test_device_reports_produce_the_expected_findings(case: dict[str, Any]) -> None:
    seen = reports_of(case)
    said = [one for subject in SUBJECTS.values() for one in subject.judge(seen)]
    shown = [
        f"{one.id} {one.status} {one.node}: {one.summary}" if isinstance(one, Finding) else f"{one['id']}: {one['why']}"
        for one in said
        if not isinstance(one, Finding) or one.status != "pass"
    ]
    assert shown == case["expect"]["said"]
    passed = [f"{one.id}: {one.summary}" for one in said if isinstance(one, Finding) and one.status == "pass"]
    assert passed == case["expect"].get("passed", [])
    for stage, part in case["expect"].get("measured", {}).items():
        whole = SUBJECTS[stage].measured(seen)
        assert {name: whole[name] for name in part} == part


@pytest.mark.parametrize("stage", SUBJECTS)
@pytest.mark.parametrize("junk", [None, True, "x", -1, float("nan"), float("inf"), [None], {"a": []}, [[{}]], 10**400])
def test_invalid_facts_raise_no_exception_and_never_pass(stage: str, junk: Any) -> None:
    """Replace all facts of a stage with a value of another type."""
    points = [dict.fromkeys(("seconds", "throttled", "temperature_c", "ecc_corrected", "samples_per_second"), junk)]
    case = {"stages": {stage: {"all": dict.fromkeys(FACTS, junk)}}, "points": {0: points, 1: points}}
    seen = reports_of(case)
    said = list(SUBJECTS[stage].judge(seen))
    SUBJECTS[stage].measured(seen)
    assert all(one.node and one.status != "pass" for one in said if isinstance(one, Finding))


@pytest.mark.parametrize(
    ("model", "begin"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM6"),
        ("NVIDIA A100-SXM-64GB", ""),
        ("Tesla V100-SXM3-32GB", ""),
        ("NVIDIA T400 4GB", ""),
        ("NVIDIA A100X", ""),
        ("NVIDIA A40-48Q", ""),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""),
        ("NVIDIA GeForce RTX 4090", ""),
        ("", ""),
    ],
)
def test_minimum_rates_are_chosen_by_gpu_model(model: str, begin: str) -> None:
    found = device.floor(TABLE, model)
    assert found.basis.startswith(f"data sheet of {begin}: https://" if begin else "")
    assert bool(found.basis) is bool(begin)


def test_each_row_of_the_rate_table_has_a_source_and_unique_names() -> None:
    names = [name for row in TABLE["gpus"] for name in row["names"]]
    assert len(names) == len(set(names))
    for row in TABLE["gpus"]:
        assert row["source"].startswith("https://")
        assert 0 < row.get("gemm_floor", TABLE["floors"]["gemm"]) <= TABLE["floors"]["gemm"]
