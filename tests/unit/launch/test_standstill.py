"""Who holds up a launch.

Every file in cases/stall is a standstill of two nodes with one rank each: stderr by node, ranks as the nodes saw them,
and who must be named for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases import cases
from muster.launch import standstill
from muster.launch.failure import NodeReport

if TYPE_CHECKING:
    from muster.launch.messages import RankState


@cases(__file__, "stall")
def test_standstill(case: dict[str, Any]) -> None:
    reports = [
        NodeReport(node, first_rank=rank, stderr={"0": text} if text else {})
        for rank, (node, text) in enumerate(case["stderr"].items())
    ]
    stuck = standstill.standing_still(case.get("ranks", {}))
    found = standstill.findings("node1", "no rank wrote a line for 60 s", stuck, reports, "logs")
    assert [f"{finding.node}: {finding.summary}" for finding in found] == case["expect"]
    assert {(finding.id, finding.status) for finding in found} == {("launch.stalled", "fail")}


def test_standing_still_names_only_who_cannot_go_on() -> None:
    def rank(number: int, state: str) -> RankState:
        return {"rank": number, "local_rank": 0, "state": state}

    found = standstill.standing_still(
        {"node2": [rank(2, "Z"), rank(3, "S")], "node1": [rank(0, "t"), rank(1, "R"), {"rank": 4}]}
    )
    assert [(one.rank, one.node, one.sentence) for one in found] == [
        (0, "node1", "rank 0 (local rank 0) stands still: stopped by a debugger"),
        (2, "node2", "rank 2 (local rank 0) stands still: dead, not yet reaped"),
    ]


def test_stack_keeps_its_innermost_lines() -> None:
    lines = [f'  File "/srv/job/train.py", line {number} in step' for number in range(1, 20)]
    header = "Current thread 0x00007f5dfce69b80 (most recent call first):"
    assert (
        standstill.last_stack("\n".join(["Thread 0x0 (most recent call first):", lines[9], header, *lines]))
        == lines[:8]
    )
