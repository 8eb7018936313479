"""Sizes and removal of folder trees with untrusted contents."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from muster_node.tools import files, trees

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 60.0


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


def remove(tree: Path, seconds: float = LIMIT) -> bool:
    with files.folder(str(tree.parent)) as within:
        return trees.remove(within, tree.name, time.monotonic() + seconds)


def test_tree_is_removed_and_links_are_not_followed(tree: Path, tmp_path: Path) -> None:
    assert remove(tree)
    assert list(tree.parent.iterdir()) == []
    assert (tmp_path / "elsewhere/kept").exists()
    assert remove(tree), "the tree is already removed"


def test_link_in_place_of_a_tree_is_not_followed(tree: Path, tmp_path: Path) -> None:
    link = tree.parent / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert not remove(link)
    assert (tmp_path / "elsewhere/kept").exists()


def test_deep_tree_is_removed(tree: Path) -> None:
    here = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert size(tree) > 0
    assert remove(tree)


def test_removal_stops_at_its_deadline(tree: Path) -> None:
    assert not remove(tree, -1.0)
    assert (tree / "a/b/file").exists()


@pytest.mark.parametrize("place", ["root/tree", "root/tree/a"])
def test_bind_mounts_of_the_same_file_system_are_not_entered(tree: Path, tmp_path: Path, place: str) -> None:
    """In a mount namespace of its own, so that no mount stays."""
    there = tmp_path / place
    code = f"""
import ctypes, os, sys
sys.path[:0] = {sys.path!r}
from muster_node.tools import files, trees
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x44000, None):
    sys.exit("cannot mount")
if libc.mount({str(tmp_path / "elsewhere").encode()!r}, {str(there).encode()!r}, None, 0x1000, None):
    sys.exit("cannot mount")
with files.folder({str(tree.parent)!r}) as within:
    print(trees.remove(within, {tree.name!r}, {time.monotonic() + LIMIT}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "cannot mount" in done.stderr:
        pytest.skip("needs the right to mount")
    assert done.stdout == "False\n", done.stderr
    assert (tmp_path / "elsewhere/kept").exists()


def size(tree: Path, seconds: float = LIMIT) -> int:
    with files.folder(str(tree.parent)) as within:
        return trees.size(within, tree.name, time.monotonic() + seconds)


def test_size_on_disk_is_measured(tree: Path) -> None:
    before = size(tree)
    assert before < 100_000, "no link is followed"
    with (tree / "a/b/sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    assert 0 <= size(tree) - before < 1 << 20
    assert size(tree, -1.0) == 0
