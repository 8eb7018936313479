"""Files fetched from working folders: safe names, size limits, and reports on files that were not fetched."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cases import cases
from muster.launch.fetched import (
    Fetched,
    FetchedFile,
    choose,
    findings,
    listing_of,
    parts_of,
    problems_of,
    sentence,
    unsafe,
)


@cases(__file__, "fetched")
def test_files_to_fetch_are_selected_within_the_limits(case: dict[str, Any]) -> None:
    listings = {node: listing_of(answer) for node, answer in case["answers"].items()}
    fetched = Fetched("/kept/fetched")
    taken = choose(listings, case["most"], fetched)
    assert {node: [file.path for file in files] for node, files in taken.items()} == case["taken"]
    assert fetched.left == case["left"]
    fetched.came = {node: [(file.path, file.size) for file in files] for node, files in taken.items()}
    assert sentence(fetched) == case["said"]
    shown = findings(fetched, {"node1": "/srv/work/1"})
    assert [(one.status, one.node, one.summary, one.fix["text"]) for one in shown] == [
        tuple(one) for one in case["findings"]
    ]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "./a",
        "a/.",
        "a\nb",
        "a\x1b[2J",
        "x" * 256,
        "a/" * 600 + "b",
        "\udc80",
    ],
)
def test_unsafe_path_is_rejected(path: str) -> None:
    assert unsafe(path)


@pytest.mark.parametrize("path", ["a", "a/b.pt", "..a/b..", "Größe/ergebnis 1.json", ".hidden"])
def test_safe_path_is_accepted(path: str) -> None:
    assert unsafe(path) == ""


@pytest.mark.parametrize(
    "pattern", ["", "/", ".", "/etc/passwd", "../*", "a/../../b", "**/**/**/**/x", "a\0", "x" * 1001]
)
def test_invalid_pattern_is_rejected(pattern: str) -> None:
    assert len(problems_of([pattern])) == 1


def test_valid_patterns_are_accepted() -> None:
    assert problems_of(["*.json", "**/*.pt", "results", "results/**/last.*"]) == []
    assert problems_of(["x"] * 51) == ["launch_fetch has more than 50 patterns."]


def part(path: str, offset: int, data: bytes, **more: Any) -> dict[str, Any]:
    return {"path": path, "offset": offset, "data": base64.b64encode(data).decode(), "size": 9, "changed": 1, **more}


def test_only_requested_file_parts_are_used() -> None:
    given = [
        part("a", 4, b"xyz"),
        part("../a", 0, b"x"),
        part("b", 1, b"x"),
        part("b", 0, b"x", size="9"),
        {**part("b", 0, b"x"), "data": "?"},
        {"path": "c", "why": "Permission denied"},
        7,
    ]
    found = parts_of({"parts": given}, {"a": 4, "b": 0, "c": 0})
    assert [(one.path, one.offset, one.data, one.why) for one in found] == [
        ("a", 4, b"xyz", ""),
        ("c", 0, b"", "Permission denied"),
    ]
    assert parts_of({"parts": 7}, {"a": 0}) == []


def test_listing_with_wrong_shape_is_ignored() -> None:
    given = {
        "files": [{"path": "a", "size": 1, "changed": 2}, {"path": 7}, {"path": "b", "size": -1, "changed": 0}, [], "x"]
    }
    assert listing_of(given).files == [FetchedFile("a", 1, 2)]
    assert listing_of({"files": 7, "left": [7], "why": ["x"]}).files == []
