"""Findings that a diagnosis adds to the launch's verdict, by certainty."""

from __future__ import annotations

from typing import Any

import pytest

from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.findings import with_diagnosis
from muster.diagnosis.words import diagnosis
from muster.verdict.finding import add_up
from sparse import case_of

KILLED = {"ranks": {2: {"code": -9, "gone_at": 150.0}}}
PROVED = {**KILLED, "records": {"node2": {"start": {"unit": {}}, "end": {"unit": {}, "kernel": []}}}}
LINES = (
    "Traceback (most recent call last):",
    '  File "/srv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4810, in monitored_barrier',
    "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms",
)
MISSED = {
    "ranks_per_node": 1,
    "participants": ["node1", "node2"],
    "snapshots": {"node2": {"ranks": [{"rank": 1}]}},
    "ranks": {0: {"code": 1, "gone_at": 150.0, "stderr": "".join(f"[rank0]: {line}\n" for line in LINES)}},
}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (PROVED, [("launch.cause", "fail", "node2")]),
        (MISSED, [("launch.cause.likely", "warn", "node2")]),
        (KILLED, [("launch.cause.unknown", "unknown", "cluster")]),
    ],
    ids=["confirmed", "likely", "unknown"],
)
def test_cause_becomes_a_finding(seen: dict[str, Any], found: list[tuple[str, str, str]]) -> None:
    case = case_of(seen)
    decided = decide(case, CAUSES)
    verdict = with_diagnosis(add_up([]), case, decided, diagnosis(case, decided))
    assert [(one["id"], one["status"], one["node"]) for one in verdict["findings"]] == found
