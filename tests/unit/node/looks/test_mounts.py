"""Probe of mounted folders on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.muster_node.looks import mounts
from ansible.module_utils.muster_node.shared_data.mounted import Mounted

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_mount_point_folder_and_missing_path_are_distinguished(tmp_path: Path) -> None:
    found = mounts.look([{"path": "/proc"}, {"path": str(tmp_path)}, {"path": f"{tmp_path}/gone"}, {"path": "/proc"}])
    assert found["why"] == ""
    proc = found["folders"].pop("/proc")
    assert (proc["why"], proc["late"], proc["source"], proc["type"]) == ("", False, "proc", "proc")
    assert "rw" in proc["options"].split(",")
    nothing = {"late": False, "source": "", "type": "", "options": ""}
    assert {name: found["folders"][name] for name in (str(tmp_path), f"{tmp_path}/gone")} == {
        str(tmp_path): {"why": "", **nothing},
        f"{tmp_path}/gone": {"why": "No such file or directory", **nothing},
    }


def test_last_mount_on_a_path_and_network_mounts_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share, other = str(tmp_path), f"{tmp_path}/other"
    listed = [
        Mounted(share, "server:/old", "nfs", "ro"),
        Mounted(share, "server:/new", "nfs4", "rw"),
        Mounted(share, "systemd-1", "autofs", "rw"),
        Mounted(other, "server:/other", "cifs", "rw"),
        Mounted("/", "/dev/sda1", "ext4", "rw"),
    ]
    monkeypatch.setattr(mounts, "mounted", lambda: listed)
    found = mounts.look([{"path": share}])["folders"]
    assert list(found) == [share, other]
    assert (found[share]["source"], found[share]["type"], found[share]["options"]) == ("server:/new", "nfs4", "rw")
    assert found[other]["why"] == "No such file or directory"


def test_unreadable_mount_table_skips_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "mounted", list)
    assert mounts.look([{"path": "/proc"}]) == {"why": "the mounts cannot be listed", "folders": {}, "left_out": 0}


def test_mounts_of_users_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may mount FUSE on an own folder, also on a home on NFS: root gets EACCES there."""
    fuse = "rw,nosuid,nodev,rw,user_id=1000,group_id=1000"
    listed = [
        Mounted("/data", "server:/data", "nfs4", "rw"),
        *(Mounted(f"/home/anna/{number}", "m", "fuse.sshfs", fuse) for number in range(30)),
        Mounted("/home/ben", "server:/home/ben", "nfs4", "rw"),
        Mounted("/home/ben", "m", "fuse.sshfs", fuse),
        Mounted("/mnt/site", "m", "fuse.sshfs", "rw,user_id=0,group_id=0"),
        Mounted("/sets", "m", "fuse.x", fuse),
    ]
    monkeypatch.setattr(mounts, "mounted", lambda: listed)
    monkeypatch.setattr(mounts, "silence", lambda path, _: ("", False) if path == "/mnt/site" else ("late", True))
    found = mounts.look([{"path": "/sets"}])
    assert {path: one["late"] for path, one in found["folders"].items()} == {"/data": True, "/mnt/site": False}
    assert found["left_out"] == 1  # /sets


def test_mounts_beyond_the_time_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [Mounted(f"/home/{number}", "server:/home", "nfs4", "rw") for number in range(100)]
    monkeypatch.setattr(mounts, "mounted", lambda: listed)
    monkeypatch.setattr(mounts, "silence", lambda *_: ("", False))
    assert (len(mounts.look([])["folders"]), mounts.look([])["left_out"]) == (100, 0)
    monkeypatch.setattr(mounts, "ALL_SECONDS", 0.0)
    assert (mounts.look([])["folders"], mounts.look([])["left_out"]) == ({}, 100)
