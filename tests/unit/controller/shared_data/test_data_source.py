"""File lists from nodes are validated before use."""

from __future__ import annotations

from typing import Any

import pytest

from muster_controller.shared_data.data_source import DataListing, SourceError, from_node, measured
from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools.transfer import encode

A, B = (ManifestFile(name, executable=False, size=1, sha256=name * 64) for name in "ab")


def listed(files: list[Any], links: list[Any]) -> DataListing:
    return from_node(encode([[list(file) for file in files], links]))


def test_valid_list_is_accepted_unchanged() -> None:
    assert listed([A, B], [["c", "a"]]) == DataListing([A, B], [("c", "a")])
    assert listed([], [["c", "d"]]) == DataListing([], [("c", "d")])


@pytest.mark.parametrize(
    ("files", "links", "why"),
    [
        ([B, A], [], "entries are not sorted"),
        ([A], [["c", "../../etc/shadow"]], "a link points outside the folder"),
        ([A], [["../c", "a"]], "a link points outside the folder"),
        ([], [], "the folder is empty"),
    ],
)
def test_invalid_list_is_rejected(files: list[Any], links: list[Any], why: str) -> None:
    with pytest.raises(SourceError) as refused:
        listed(files, links)
    assert refused.value.problems == [f"invalid file list: {why}"]


def test_undecodable_list_is_rejected() -> None:
    with pytest.raises(SourceError) as refused:
        from_node("no list")
    assert refused.value.problems[0].startswith("invalid file list: ")


def test_long_list_is_validated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MOST_FILES", 1)
    assert listed([A, B], []).files == [A, B]


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ({"bytes": 1, "files": 1, "more": 0}, ["invalid answer"]),
        ({"bytes": "1", "files": 1, "more": 0, "problems": []}, ["invalid answer"]),
        ({"bytes": 0, "files": 0, "more": 0, "problems": []}, []),
        ({"bytes": 0, "files": 0, "more": 2, "problems": ["x: a pipe"]}, ["/data: x: a pipe", "and 2 more"]),
    ],
)
def test_measured_size_is_validated(data: dict[str, Any], problems: list[str]) -> None:
    if not problems:
        assert measured("/data", data) == 0
        return
    with pytest.raises(SourceError) as refused:
        measured("/data", data)
    assert refused.value.problems == problems
