"""Every file in cases/comm contains the ranks' reports about collectives, bandwidth and transport, and the expected
findings.

nproc: ranks per node. facts: by stage and rank; `all` applies to every rank. findings: all except passes, or all if
`passes` is true. skipped: all skipped checks, in order.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases, document_of
from launch_shapes import a_plan
from muster.acceptance import bandwidth, collectives, reports, transport
from muster.verdict.check import collect
from paths import ROOT
from payload_parts import part

nccl_log = part("nccl_log")
TABLE = document_of(ROOT / "roles/ddp_smoke/files/gpu_rates.yml")
SUBJECTS = (collectives, bandwidth, transport)


def reports_of(case: dict[str, Any]) -> reports.Reports:
    entry = {"interface": case.get("interface", "eth0")}
    plan = a_plan(case.get("nproc", {"node1": 2, "node2": 2}), entry=entry, backend=case.get("backend", "nccl"))
    events = []
    for stage, by_rank in case["facts"].items():
        for rank in range(plan.world_size):
            own = {**by_rank.get("all", {}), **by_rank.get(rank, {})}
            if "log" in own:
                own.update(nccl_log.parse(own.pop("log")))
            status = by_rank.get("status", "ok")
            events.append({"event": "stage", "stage": stage, "status": status, "facts": own, "from_rank": rank})
    rails = tuple(case.get("rails", ()))
    bounds = reports.Bounds(busbw_floor=case.get("floor", 0.0), rails=rails, gpu_rates=TABLE)
    return reports.read(plan, events, "quick", tuple(case["facts"]), bounds)


@cases(__file__, "comm")
def test_communication_reports_produce_the_expected_findings(case: dict[str, Any]) -> None:
    seen = reports_of(case)
    judged = collect(said for subject in SUBJECTS for said in subject.judge(seen))
    shown = [f for f in judged.findings if f.status != "pass" or case.get("passes")]
    assert [f"{f.id} {f.status} {f.node}: {f.summary}" for f in shown] == case["expect"]["findings"]
    assert [f.fix["text"] for f in shown if "known" in case] == case.get("known", [])
    assert [f.fix["command"] for f in shown if "command" in f.fix] == case["expect"].get("fixes", [])
    assert [f"{one['id']}: {one['why']}" for one in judged.skipped] == case["expect"].get("skipped", [])
    for subject, wanted in case["expect"].get("measured", {}).items():
        measured = next(each for each in SUBJECTS if subject == each.STAGE).measured(seen)
        assert {name: measured[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"all_reduce": 3, "cases": {"collective": 1}, "not_tried": [], "random": 7},
        {"all_reduce": [{"size": "x"}, 4], "cases": [{"sizes": [None, "1"], "wrong": [{"samples": [{"place": 0}]}]}]},
        {"all_reduce": [{"size": float("nan"), "mismatches": 1}], "cases": [{"sizes": 5, "wrong": [{"size": 1e400}]}]},
        {"curves": 3, "pairs": "x"},
        {"curves": [{"level": "all", "points": [{"bytes": "8"}]}, {"level": [], "points": 7}], "pairs": [{"a": "x"}]},
        {"curves": [{"level": "all", "points": [{"bytes": 8, "seconds": 0, "algbw": 1, "busbw": float("inf")}]}]},
        {"net": 5, "channels": [{"from": "x", "to": None}, 7], "offered": 3, "reasons": 4, "graph": {}, "sockets": 9},
        {"net": "Socket", "offered": {"adapters": [{"active": True, "name": None}]}, "reasons": [None, {}]},
        {"sockets": [{"interface": None, "address": [], "peer": {}}, 5], "why_not": 3},
    ],
)
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_invalid_report_never_passes(facts: dict[str, Any], backend: str) -> None:
    stages = {subject.STAGE: {"all": facts} for subject in SUBJECTS}
    seen = reports_of({"backend": backend, "facts": stages, "nproc": {"node1": 1, "node2": 1, "node3": 1}})
    judged = collect(said for subject in SUBJECTS for said in subject.judge(seen))
    passed = {f.id for f in judged.findings if f.status == "pass"}
    assert passed <= {"smoke.interface"} if "sockets" in facts else passed == set()
    for subject in SUBJECTS:
        subject.measured(seen)
