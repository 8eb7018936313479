"""Data facts of one node, for the comparison between nodes."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import facts

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.getuid())


def look(*paths: Path) -> list[dict[str, Any]]:
    found = facts.data_facts([str(path) for path in paths], ME)
    assert [one["path"] for one in found] == [str(path) for path in paths]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train/deep").mkdir(parents=True)
    (tmp_path / "train/a").write_text("aa")
    (tmp_path / "train/deep/b").write_text("b")
    (tmp_path / "train/odd\udcff").write_text("")
    return tmp_path / "train"


def test_folder_digest_covers_file_names_and_sizes(folder: Path, tmp_path: Path) -> None:
    first = look(folder)[0]
    assert (first["kind"], first["count"], first["bytes"], first["error"]) == ("folder", 3, 3, "")
    assert first["names"] == [["a", 2], ["odd\N{REPLACEMENT CHARACTER}", 0], ["deep/b", 1]]
    (folder / "a").write_text("zz")  # different content of the same size
    assert look(folder)[0] == first
    (folder / "a").write_text("aaa")
    assert look(folder)[0]["digest"] != first["digest"]
    (folder / "a").write_text("aa")
    (folder / "deep/b").rename(folder / "deep/c")
    assert look(folder)[0]["digest"] != first["digest"]


def test_file_digest_covers_content_or_size(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = look(folder / "a")[0]
    (folder / "a").write_text("ab")
    assert one["kind"] == "file"
    assert look(folder / "a")[0]["digest"] != one["digest"]
    monkeypatch.setattr(facts, "MOST_READ", 1)
    assert look(folder / "a")[0]["digest"] == "2 bytes"


def test_missing_and_special_files_are_reported(folder: Path, nothing_waits: None) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "nowhere").symlink_to("missing")
    errors = [one["error"] for one in look(folder / "missing", folder / "pipe", folder / "nowhere", folder / "a/b")]
    assert errors == ["does not exist", "is neither a folder nor a file", "does not exist", "Not a directory"]
    assert look(folder)[0]["count"] == 5  # special files count by their names


@pytest.mark.skipif(os.getuid() != 0, reason="only root can check as another user")
def test_data_is_checked_as_the_user(folder: Path, tmp_path: Path) -> None:
    for parent in [folder, *folder.parents]:
        if str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    nobody = pwd.getpwnam("nobody")
    assert facts.data_facts([str(folder)], nobody)[0]["error"] == ""
    (folder / "deep").chmod(0o700)
    assert facts.data_facts([str(folder)], nobody)[0]["error"] == f"is not readable ({folder}/deep)"
    folder.chmod(0o700)
    assert facts.data_facts([str(folder), str(folder / "a")], nobody)[0]["error"] == "is not readable"
    assert facts.data_facts([str(folder / "a")], nobody)[0]["error"] == "is not readable"
    assert facts.data_facts([str(folder)], None) == []


def test_data_check_is_limited_in_entries_and_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_ENTRIES", 2)
    cut = look(folder)[0]
    assert cut["cut"]
    assert cut["count"] == 2
    assert cut["digest"]
    (folder / "deep/b").write_text("behind the limit")
    assert look(folder)[0] == cut
    assert facts._folder(str(folder), 0.0)["digest"] == ""
