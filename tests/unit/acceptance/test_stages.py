"""Every file in cases/stages contains stage outcomes other than `ok` on two nodes with two ranks each, and the
findings.

change: status, reason and facts of the report, by rank and stage; null means that nothing was reported. expect: all
findings.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import reports, stages
from muster.verdict.finding import Finding

WANTED = ("world", "device", "collectives")


@cases(__file__, "stages")
def test_stage_outcomes_produce_the_expected_findings(case: dict[str, Any]) -> None:
    events = []
    for rank in range(4):
        for stage in WANTED:
            change = case.get("change", {}).get(rank, {}).get(stage, {})
            if change is not None:
                report = {"event": "stage", "stage": stage, "status": "ok", "facts": {}, **change}
                events.append({**report, "from_rank": rank, "from_node": f"node{rank // 2 + 1}"})
    seen = reports.read(a_plan({"node1": 2, "node2": 2}), events, "quick", WANTED, reports.Bounds())
    found = [one for one in stages.judge(seen) if isinstance(one, Finding)]
    assert [f"{one.id} {one.status} {one.node}: {one.summary}" for one in found] == case["expect"]
