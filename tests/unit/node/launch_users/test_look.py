"""Facts for user launches, read from this machine."""

from __future__ import annotations

import os
import pwd
import resource
import stat
from typing import TYPE_CHECKING

import pytest

from muster_node.launch_users import look
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ME = pwd.getpwuid(os.getuid())
NOBODY = 65534


def test_limits_are_read_from_the_process() -> None:
    assert look.limit(os.getpid(), "nofile") == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert look.limit(2**22 + 1, "memlock") == (0.0, 0.0)


def test_owner_of_a_folder_is_reported_and_links_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "hers").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "hers")
    assert look.owner_of(str(tmp_path / "hers")) == ME.pw_name
    assert look.owner_of(str(tmp_path / "link")) == "nobody (not a folder)"
    assert look.owner_of(str(tmp_path / "none")) == ""


def test_root_writable_by_other_users_is_unsafe(tmp_path: Path) -> None:
    root = tmp_path / "users"
    assert look.unsafe(str(root)) == ""
    root.mkdir()
    root.chmod(0o777)
    assert look.unsafe(str(root)) == f"{root} is writable by all users"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ext4", ""), ("nfs4", "{} is a network file system (nfs4)"), ("cifs", "{} is a network file system (cifs)")],
)
def test_root_on_a_network_file_system_is_unsafe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: str
) -> None:
    mounts = f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 21 0:31 / {tmp_path} rw shared:5 - {kind} server:/srv rw\n"
    read: Callable[..., str | None] = files.text
    monkeypatch.setattr(files, "text", lambda path, **_: mounts if path.endswith("mountinfo") else read(path))
    assert look.unsafe(str(tmp_path / "users")) == expected.format(tmp_path)


def test_missing_program_is_not_reported_as_permission_denied(tmp_path: Path) -> None:
    assert look.may_run(ME, str(tmp_path / "torchrun")) is None
    program = tmp_path / "torchrun"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert look.may_run(ME, str(program)) is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
def test_environment_without_permissions_cannot_be_run(tmp_path: Path) -> None:
    program = tmp_path / "closed" / "torchrun"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert look.may_run(pwd.getpwuid(NOBODY), str(program)) is False


def test_slot_file_owner_and_mode_are_reported(tmp_path: Path) -> None:
    slot = tmp_path / "cpu"
    slot.touch(mode=0o644)
    kept = look.kept(slot.stat())
    assert kept.endswith(f" {stat.S_IMODE(slot.stat().st_mode):04o}")
    assert kept.startswith(f"{ME.pw_name}:")


def test_own_process_is_not_a_user_manager() -> None:
    assert not look.of_manager(os.getpid(), 0)
    assert look.of_manager(os.getpid(), os.getpid())
    assert look.launches(os.getuid(), [os.getpid()]) == []
