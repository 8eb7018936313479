"""Resource limits of the controller and the pace of its requests, depending on the number of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.launch.grants import Grants, judge
from muster.launch.watch import pace
from muster.verdict.finding import as_lines


@cases(__file__, "grants")
def test_low_controller_limits_are_reported(case: dict[str, Any]) -> None:
    found = judge(Grants(*case["granted"]), case["nodes"])
    assert as_lines(found) == case["said"]
    assert {finding.id for finding in found} <= {"launch.controller"}


@pytest.mark.parametrize("nodes", [1, 2, 8, 64, 250, 1000])
def test_request_pace_stays_within_its_limits(nodes: int) -> None:
    one = pace(nodes)
    assert one.wait + one.pause + 2 < one.notice < one.patience < one.lease, "a healthy node is never reported"
    assert one.look_bytes * nodes <= 32 * 1024 * 1024
    assert nodes / (one.wait + one.pause) <= max(80, nodes / 8), "requests per second"


def test_request_pace_for_two_nodes_is_the_default() -> None:
    assert (pace(2).notice, pace(2).patience, pace(2).lease) == (5.0, 9.0, 11.0)
