"""Comparison of training data on all nodes before a launch.

cases/data: each node's report on one path -> the findings.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import data

FACTS: dict[str, Any] = {
    "path": "/data",
    "kind": "folder",
    "count": 2,
    "bytes": 4,
    "digest": "usual",
    "names": [["a", 2], ["b", 2]],
    "cut": False,
    "error": "",
}


@cases(__file__, "data")
def test_data_reports_produce_the_expected_findings(case: dict[str, Any]) -> None:
    seen = {node: [{**FACTS, **given}] if isinstance(given, dict) else given for node, given in case["seen"].items()}
    found = data.judge(["/data"], seen, "muster")
    assert [f"{one.node} {one.status}: {one.summary}" for one in found] == case["expect"]
    assert all(one.id == "launch.data" and one.fix["text"] for one in found)


def test_each_path_is_compared_separately() -> None:
    one, two = {**FACTS, "path": "/a"}, {**FACTS, "path": "/b"}
    seen = {"node1": [one, two], "node2": [one, {**two, "digest": "other", "names": []}]}
    assert [finding.summary.partition(" differs")[0] for finding in data.judge(["/a", "/b"], seen, "muster")] == ["/b"]


def test_relative_data_paths_are_rejected() -> None:
    assert data.problems_of(["/data", "/srv/SHA256SUMS"]) == []
    assert data.problems_of(["data", 7]) == [
        "launch_data contains 'data', which is not an absolute path.",
        "launch_data contains 7, which is not an absolute path.",
    ]
