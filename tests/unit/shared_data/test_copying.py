"""Copying data to nodes in parts. Node answers are untrusted."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.shared_data import copying
from muster.shared_data.copying import CopyRequest, Lack

NODES = ("node1", "node2")
ANSWER: dict[str, Any] = {"missing": [0], "changed": [], "links": [], "blocked": [], "room": 1, "inodes": None}


@cases(__file__, "asked")
def test_copy_request_is_validated(case: dict[str, Any]) -> None:
    found, problems = copying.asked(case["source"], case["target"], NODES)
    assert problems == case["problems"]
    assert found == CopyRequest(case["node"], case["path"], case["target"].rstrip("/"))


@cases(__file__, "against")
def test_copy_obstacles_are_reported(case: dict[str, Any]) -> None:
    lack, sizes = Lack(), case["sizes"]
    assert lack.add(case["answer"], 0, len(sizes), 1)
    assert copying.against("/data", lack, sizes, range(len(sizes))) == case["against"]
    assert copying.lacks_text(lack, sizes, ["a", "b", "c"]) == case["lacks"]


def test_copy_parts_are_limited_in_size_and_large_files_are_separate() -> None:
    sizes = [4, 4, 4, 30, 0, 10]
    assert list(copying.parts(sizes, [0, 1, 2, 3, 4, 5], 10)) == [[0, 1], [2], [3], [4, 5]]
    assert list(copying.parts(sizes, [1, 5], 10)) == [[1], [5]]
    assert list(copying.parts(sizes, [], 10)) == []
    assert [len(part) for part in copying.parts([0] * 12_000, range(12_000))] == [5000, 5000, 2000]


@pytest.mark.parametrize(
    "other",
    [
        {"missing": [1]},
        {"missing": [-1]},
        {"missing": [True]},
        {"missing": ["0"]},
        {"missing": {}},
        *({"links": [2]}, {"changed": 0}, {"blocked": ""}, {"room": "1"}, {"inodes": 0.5}),
    ],
    ids=str,
)
def test_invalid_answers_are_rejected(other: dict[str, Any]) -> None:
    lack = Lack()
    assert not lack.add({**ANSWER, **other}, 7, 1, 2)
    assert lack == Lack()


def test_answers_about_several_parts_are_combined() -> None:
    lack = Lack()
    assert lack.add({**ANSWER, "links": [1]}, 0, 3, 2)
    assert lack.add({**ANSWER, "changed": [1]}, 3, 2, 0)
    assert (lack.missing, lack.changed, lack.links) == ({0, 3}, {4}, {1})


def test_wrong_files_are_listed_up_to_a_limit() -> None:
    paths = [f"{number}.bin" for number in range(50)]
    lack = Lack(missing={1}, changed={*range(2, 40)}, links={0})
    lines = copying.wrong_lines("node2", "/data", lack, paths, ["link"], {"names": ["mine"], "more": 3})
    assert lines[0] == "node2: /data/2.bin was changed"
    assert lines[-2:] == ["node2: /data/mine is additional (kept)", "node2: and 23 more"]
    assert len(lines) == copying.MOST_NAMED + 2
