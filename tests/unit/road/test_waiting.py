"""Lines about slow tasks: the nodes that a task waits for, and what these nodes do."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.road.waiting import NodeActivity, clock, node_activity, waiting_line, waiting_screen

TORCH = NodeActivity("downloading torch, 1.2 of 2.9 GB", 0.41)
UNKNOWN = NodeActivity("downloading numpy, 18 MB")


@cases(__file__, "node_activity")
def test_activity_is_one_short_sentence(case: dict[str, Any]) -> None:
    found = node_activity(case["given"], case.get("sizes", {}), case.get("wheels", 0))
    assert (found and found.text) == case["said"]
    if found:
        assert found.part == (case["part"] if case["part"] is None else pytest.approx(case["part"], abs=0.005))


def test_line_names_nodes_and_activities() -> None:
    line = waiting_line(90.4, ["node1", "node3"], {"node3": TORCH})
    assert line == "waiting for node1, node3: 1:30 (node3: downloading torch, 1.2 of 2.9 GB)"
    assert waiting_line(16, [f"n{number}" for number in range(1, 8)], {}) == (
        "waiting for n1, n2, n3, n4, n5 and 2 more: 0:16"
    )
    assert waiting_line(60, [], {}) == "running: 1:00"


def test_screen_has_a_bar_for_each_known_fraction_and_fits_the_width() -> None:
    activities = {"node1": TORCH, "longer": UNKNOWN}
    assert waiting_screen(90, ["node1", "longer"], activities, 80) == [
        "  node1  [########............] downloading torch, 1.2 of 2.9 GB",
        "  longer                        downloading numpy, 18 MB",
        "  waiting for node1, longer: 1:30",
    ]
    assert {len(line) for line in waiting_screen(90, ["node1"], {"node1": TORCH}, 30)} == {29, 25}


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.9, 61, 3599, 3600, 36061)] == [
        *("0:00", "0:59", "1:01", "59:59", "1:00:00", "10:01:01")
    ]
