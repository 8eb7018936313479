"""Identification of the rank that blocks a launch.

Every file in cases/stall describes a stalled launch on two nodes with one rank each: stderr by node, the states of the
ranks, and the expected findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases import cases
from muster.launch import standstill
from muster.launch.failure import NodeReport

if TYPE_CHECKING:
    from muster.launch.messages import RankState


@cases(__file__, "stall")
def test_rank_that_blocks_a_launch_is_identified(case: dict[str, Any]) -> None:
    reports = [
        NodeReport(node, first_rank=rank, stderr={"0": text} if text else {})
        for rank, (node, text) in enumerate(case["stderr"].items())
    ]
    stuck = standstill.standing_still(case.get("ranks", {}))
    found = standstill.findings("node1", "no rank printed a line for 60 s", stuck, reports, "logs")
    assert [f"{finding.node}: {finding.summary}" for finding in found] == case["expect"]
    assert {(finding.id, finding.status) for finding in found} == {("launch.stalled", "fail")}


def test_only_blocked_ranks_count_as_stalled() -> None:
    def rank(number: int, state: str) -> RankState:
        return {"rank": number, "local_rank": 0, "state": state}

    found = standstill.standing_still(
        {"node2": [rank(2, "Z"), rank(3, "S")], "node1": [rank(0, "t"), rank(1, "R"), {"rank": 4}]}
    )
    assert [(one.rank, one.node, one.sentence) for one in found] == [
        (0, "node1", "rank 0 (local rank 0) is stalled: stopped by a debugger"),
        (2, "node2", "rank 2 (local rank 0) is stalled: dead, not yet reaped"),
    ]


def test_innermost_lines_of_a_stack_are_kept() -> None:
    lines = [f'  File "/srv/job/train.py", line {number} in step' for number in range(1, 20)]
    header = "Current thread 0x00007f5dfce69b80 (most recent call first):"
    assert (
        standstill.last_stack("\n".join(["Thread 0x0 (most recent call first):", lines[9], header, *lines]))
        == lines[:8]
    )
