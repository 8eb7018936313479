"""Fetching of files from a working directory with untrusted contents."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import fetching

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def request_of(tmp_path: Path) -> Any:
    (tmp_path / "run/logs").mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()

    def make(**more: Any) -> dict[str, Any]:
        known = {"launch_id": "20260101-120000-abcd", "run_dir": str(tmp_path / "run"), "folder": str(work)}
        return {**known, **more}

    return make


def fill(work: Path, *paths: str) -> None:
    for path in paths:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(path)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.json", ["a.json"]),
        ("results/*.json", ["results/b.json"]),
        ("**/*.json", ["a.json", "results/b.json", "results/deep/er/c.json"]),
        ("results", ["results/b.json", "results/deep/er/c.json", "results/x.pt"]),
        ("results/", ["results/b.json", "results/deep/er/c.json", "results/x.pt"]),
        ("results/**", ["results/b.json", "results/deep/er/c.json", "results/x.pt"]),
        ("**/er", ["results/deep/er/c.json"]),
        ("./res*/?.[pj]*", ["results/b.json", "results/x.pt"]),
        ("nothing/*", []),
    ],
)
def test_patterns_select_files(tmp_path: Path, request_of: Any, pattern: str, paths: list[str]) -> None:
    fill(tmp_path / "work", "a.json", "results/b.json", "results/deep/er/c.json", "results/x.pt", "other/d.txt")
    found = fetching.fetchable(request_of(patterns=[pattern]))
    assert [one["path"] for one in found["files"]] == paths
    assert (found["left"], found["why"]) == ([], "")


def test_links_and_special_files_are_skipped_with_reasons(tmp_path: Path, request_of: Any) -> None:
    work = tmp_path / "work"
    fill(work, "real")
    (work / "link").symlink_to("/etc/passwd")
    (work / "folder").symlink_to("/etc")
    os.mkfifo(work / "pipe")
    (work / "two\nlines").touch()
    (work / os.fsdecode(b"no\xfftext")).touch()
    found = fetching.fetchable(request_of(patterns=["*", "folder/passwd"]))
    assert [one["path"] for one in found["files"]] == ["real"]
    assert {one["path"]: one["why"] for one in found["left"]} == {
        "link": "is a link",
        "folder": "is a link",
        "pipe": "is not a regular file",
        "two\\nlines": "has control characters in its name",
        "no\\udcfftext": "has a name that is not valid text",
    }
    parts = fetching.fetched(request_of(wanted=[{"path": "folder/passwd", "offset": 0}], limit=100))["parts"]
    assert parts[0]["path"] == "folder/passwd"
    assert "link" in parts[0]["why"]
    parts = fetching.fetched(request_of(wanted=[{"path": "../run/logs", "offset": 0}], limit=100))["parts"]
    assert parts[0]["why"] == "is not a path within a folder"


def test_missing_folder_is_reported(request_of: Any, tmp_path: Path) -> None:
    (tmp_path / "work").rmdir()
    found = fetching.fetchable(request_of(patterns=["*"]))
    assert (found["files"], found["why"]) == ([], "No such file or directory")


def test_file_parts_are_returned_up_to_the_size_limit(tmp_path: Path, request_of: Any) -> None:
    work = tmp_path / "work"
    for name, size in (("a", 10), ("b", 0), ("c", 50), ("d", 5)):
        (work / name).write_bytes(name.encode() * size)
    wanted = [{"path": name, "offset": 4 if name == "a" else 0} for name in "abcd"]
    parts = fetching.fetched(request_of(wanted=wanted, limit=20))["parts"]
    assert [(one["path"], base64.b64decode(one["data"])) for one in parts] == [
        ("a", b"a" * 6),
        ("b", b""),
        ("c", b"c" * 14),
    ]
    assert [one["size"] for one in parts] == [10, 0, 50]


def test_excessive_file_count_is_reported(tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_FILES", 3)
    monkeypatch.setattr(fetching, "MOST_SEEN", 6)
    fill(tmp_path / "work", *"abcde")
    assert fetching.fetchable(request_of(patterns=["*"]))["why"] == "more than 3 files match"
    fill(tmp_path / "work", *"fgh")
    found = fetching.fetchable(request_of(patterns=["x"]))
    assert found["why"] == "only 6 names of the working directory were checked"
