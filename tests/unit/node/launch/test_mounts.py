"""File system type of a path, from the kernel's mount table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from muster_node.launch import mounts

if TYPE_CHECKING:
    from pathlib import Path

TABLE = r"""overlay / overlay rw 0 0
proc /proc proc rw 0 0
/dev/sda1 /var ext4 rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
server:/more /home/my\040data nfs rw 0 0
tmpfs /home/ada tmpfs rw 0 0
/dev/sdb1 /var xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "overlay"),
        ("/srv/x", "overlay"),
        ("/var", "xfs"),
        ("/variable", "overlay"),
        ("/home/bob/cache", "nfs4"),
        ("/home/my data/x", "nfs"),
        ("/home/ada/cache", "tmpfs"),
    ],
)
def test_latest_of_the_innermost_mounts_is_used(path: str, kind: str) -> None:
    assert mounts.type_of(path, TABLE) == kind


def test_file_system_type_is_unknown_without_a_mount_table() -> None:
    assert mounts.type_of("/var", "") == ""


def test_missing_folder_behind_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self")
    seen = mounts.cache_facts(str(tmp_path / "link/cache"))
    assert seen == {"path": str(tmp_path / "link/cache"), "type": "proc"}


def test_links_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "2.13.0").mkdir()
    (tmp_path / "current").symlink_to("2.13.0")
    assert mounts.real_path(str(tmp_path / "current")) == os.path.realpath(tmp_path / "2.13.0")
