"""Folders that somebody else has filled."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from muster_node.tools import files, trees

if TYPE_CHECKING:
    from pathlib import Path

SOON = 60.0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "root/tree"
    (path / "a/b/c").mkdir(parents=True)
    (path / "a/b/file").write_bytes(b"x" * 8192)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").write_text("x" * 100_000)
    (path / "a/link").symlink_to(tmp_path / "elsewhere")
    (path / "gone").symlink_to("/nowhere")
    os.mkfifo(path / "a/fifo")
    return path


def remove(tree: Path, seconds: float = SOON) -> bool:
    with files.folder(str(tree.parent)) as within:
        return trees.remove(within, tree.name, time.monotonic() + seconds)


def test_it_is_removed_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    assert remove(tree)
    assert list(tree.parent.iterdir()) == []
    assert (tmp_path / "elsewhere/kept").exists()
    assert remove(tree), "it is gone"


def test_a_link_in_its_place_is_left(tree: Path, tmp_path: Path) -> None:
    link = tree.parent / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert not remove(link)
    assert (tmp_path / "elsewhere/kept").exists()


def test_as_deep_as_its_writer_liked(tree: Path) -> None:
    here = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert size(tree) > 0
    assert remove(tree)


def test_what_is_over_in_time(tree: Path) -> None:
    assert not remove(tree, -1.0)
    assert (tree / "a/b/file").exists()


def size(tree: Path, seconds: float = SOON) -> int:
    with files.folder(str(tree.parent)) as within:
        return trees.size(within, tree.name, time.monotonic() + seconds)


def test_what_it_takes_on_the_disk(tree: Path) -> None:
    before = size(tree)
    assert before < 100_000, "no link is followed"
    with (tree / "a/b/sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    assert 0 <= size(tree) - before < 1 << 20
    assert size(tree, -1.0) == 0
