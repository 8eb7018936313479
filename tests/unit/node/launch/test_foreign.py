"""Parsing of files that the training user controls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster_node.launch import foreign

RANK = {"rank": 1, "local_rank": 0, "pid": 1234, "started": 99, "gone_at": None}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"NaN",
        b'{"x": Infinity}',
        b"1e999",
        b"9" * 5000,
        b"[" * 100_000,
        b"[" * 30 + b"]" * 30,
        b'{"a":' * 900 + b"1" + b"}" * 900,
    ],
)
def test_invalid_json_is_rejected(text: bytes) -> None:
    assert foreign.parsed(text) is None


def test_valid_json_is_parsed() -> None:
    assert foreign.parsed(b'{"a": [1, 2.5, null, "x"]}') == {"a": [1, 2.5, None, "x"]}
    assert foreign.parsed(b'{"\\ud800": "\\udfff"}') == {"?": "?"}


@pytest.mark.parametrize("text", ["", "-1", "01", "1.0", " 1", "1_0", "\N{FULLWIDTH DIGIT ONE}", "99999999", "x"])
def test_invalid_rank_numbers_are_rejected(text: str) -> None:
    assert foreign.number(text) is None


def test_valid_rank_numbers_are_parsed() -> None:
    assert [foreign.number(text) for text in ("0", "7", "1023")] == [0, 7, 1023]


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 1},
        {"pid": 0},
        {"pid": -1},
        {"pid": True},
        {"pid": "1234"},
        {"pid": 1 << 40},
        {"pid": None},
        {"rank": -1},
        {"rank": 1.0},
        {"rank": [1]},
        {"local_rank": None},
        {"started": "0"},
        {"started": 1 << 70},
        {"gone_at": "now"},
        {"gone_at": 1e300},
        {"gone_at": -1},
    ],
)
def test_invalid_ranks_are_dropped(change: dict[str, Any]) -> None:
    assert foreign.table({"agent": None, "ranks": [{**RANK, **change}, RANK]})["ranks"] == [RANK]


@pytest.mark.parametrize(
    "value", [None, [], "x", 7, {"ranks": {}}, {"ranks": [1, None, [], {}]}, {"agent": [], "notes": {}}, {"notes": [7]}]
)
def test_malformed_rank_table_is_read_as_empty(value: Any) -> None:
    assert foreign.table(value) == {"agent": None, "ranks": [], "notes": [], "ending": None}


def test_invalid_entries_of_a_rank_table_are_dropped() -> None:
    agent = {"pid": 77, "started": 5}
    given = {"agent": {**agent, "x": 1}, "ranks": [{**RANK, "state": "R"}, RANK], "notes": ["x" * 9999]}
    assert foreign.table(given) == {"agent": agent, "ranks": [RANK], "notes": ["x" * 2000], "ending": None}
    assert len(foreign.table({"ranks": [{**RANK, "pid": 2 + one} for one in range(5000)]})["ranks"]) == 1024


def test_stop_request_is_validated() -> None:
    given = {"reason": "limit", "until": 7.5, "seconds": 30}
    assert foreign.table({"ending": {**given, "x": 1}})["ending"] == given
    changes: list[dict[str, Any]] = [
        {"reason": "x"},
        {"reason": []},
        {"until": "7"},
        {"seconds": float("nan")},
        {"seconds": -1},
    ]
    for change in changes:
        assert foreign.table({"ending": {**given, **change}})["ending"] is None


@pytest.mark.parametrize(
    "value", [None, [], {}, {"reason": 1, "ended_at": 1.0}, {"reason": "x"}, {"reason": "x", "ended_at": "y"}]
)
def test_malformed_results_are_rejected(value: Any) -> None:
    assert foreign.result(value) is None


def test_invalid_parts_of_a_result_are_dropped() -> None:
    value = {"reason": "exit", "code": -9, "error": "x" * 9999, "ended_at": 1.5, "other": [1]}
    assert foreign.result(value) == {"reason": "exit", "code": -9, "error": "x" * 2000, "ended_at": 1.5}
    assert foreign.result({**value, "code": "0", "error": 7}) == {"reason": "exit", "ended_at": 1.5}
    assert json.dumps(foreign.result(value))
