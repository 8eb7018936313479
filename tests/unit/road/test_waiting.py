"""Lines about slow tasks: the nodes that a task waits for, and what these nodes do."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.road.waiting import NodeActivity, node_activity, waiting_lines

TORCH = NodeActivity("downloading torch, 1.2 of 2.9 GB", 0.41)
UNKNOWN = NodeActivity("downloading numpy, 18 MB")


@cases(__file__, "node_activity")
def test_activity_is_one_short_sentence(case: dict[str, Any]) -> None:
    found = node_activity(case["given"], case.get("sizes", {}), case.get("wheels", 0))
    assert (found and found.text) == case["said"]
    if found:
        assert found.part == (case["part"] if case["part"] is None else pytest.approx(case["part"], abs=0.005))


def test_line_names_nodes_and_activities() -> None:
    line = "  waiting for node1, node3: 1:30 (node3: downloading torch, 1.2 of 2.9 GB)"
    assert waiting_lines(90.4, ["node1", "node3"], {"node3": TORCH}) == [line]
    many = [f"n{number}" for number in range(1, 8)]
    assert waiting_lines(16, many, {}) == ["  waiting for n1, n2, n3, n4, n5 and 2 more: 0:16"]
    assert waiting_lines(3600, [], {}) == ["  running: 60:00"]


def test_terminal_has_a_bar_for_each_known_fraction_and_lines_fit_the_width() -> None:
    activities = {"node1": TORCH, "longer": UNKNOWN}
    assert waiting_lines(90, ["node1", "longer"], activities, 80) == [
        "  node1  [########............] downloading torch, 1.2 of 2.9 GB",
        "  longer                        downloading numpy, 18 MB",
        "  waiting for node1, longer: 1:30",
    ]
    assert [len(line) for line in waiting_lines(90, ["node1"], {"node1": TORCH}, 30)] == [29, 25]
