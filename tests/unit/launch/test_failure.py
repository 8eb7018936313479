"""Every file in cases/failure contains the reports of all nodes at the end of a launch, and the expected failures.

reports: differences from a reachable node, by node. expect.failures: the cause first, then the other failures in
chronological order. expect.evidence: the evidence shown for the cause (default: none).
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import failure
from muster.launch.failure import Failure, NodeReport
from muster.launch.unit import UnitEnd

LATER = 1000.0  # a stop after everything else


def line(one: Failure) -> str:
    return f"{one.where}: {one.ending.name.lower()}{' (follows)' if one.cascade else ''}: {one.summary}"


@cases(__file__, "failure")
def test_first_failure_of_a_launch_is_identified(case: dict[str, Any]) -> None:
    reports = [
        NodeReport(node, **{**given, "unit": UnitEnd.read(given.get("unit", {}))})
        for node, given in case["reports"].items()
    ]
    cause, others = failure.first_failure(reports, case.get("stop_began", LATER))
    assert [line(one) for one in ([cause] if cause else []) + others] == case["expect"]["failures"]
    assert (cause.traceback if cause else "") == case["expect"].get("evidence", "").rstrip()
