"""Detection of other users who can write to files that control what runs on the nodes. Each case is a file tree."""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster_controller.playbook import trusted
from muster_node.tools import trust

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can create files of another user")
ALICE, BOB, TEAM = 20001, 20002, 20003  # alice and bob have private groups; both are in the team
FIRST = {"root": 0, "alice": ALICE, "bob": BOB, "ldap": TEAM}
MEMBERS = {"alice": ["alice"], "bob": [], "team": []}
NUMBERS = {**FIRST, "team": TEAM}


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set users and groups. The group of alice lists her as a member; members of the team are unknown (LDAP)."""
    users = {name: pwd.struct_passwd((name, "x", NUMBERS[name], gid, "", "/", "sh")) for name, gid in FIRST.items()}
    groups = {NUMBERS[name]: grp.struct_group((name, "x", NUMBERS[name], MEMBERS.get(name, []))) for name in NUMBERS}
    monkeypatch.setattr(pwd, "getpwall", lambda: [users[name] for name in ("root", "alice", "bob")])
    monkeypatch.setattr(pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", {one.pw_uid: one for one in users.values()}.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)


@pytest.mark.usefixtures("accounts")
@cases(__file__, "who_else_writes")
def test_write_access_of_others_is_found(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, kind in {"project": {}, **case["tree"]}.items():
        path = tmp_path / name
        path.mkdir(exist_ok=True) if name.endswith("/") or name == "project" else path.touch()
        os.chown(path, NUMBERS[kind.get("owner", "alice")], NUMBERS[kind.get("group", "alice")])
        path.chmod(int(kind.get("mode", "755"), 8))
    for name, target in case.get("links", {}).items():
        (tmp_path / name).symlink_to(target)
    monkeypatch.setattr(trusted, "project_root", lambda: project)
    monkeypatch.setattr(os, "geteuid", lambda: ALICE)
    found = trusted.who_else_writes(tmp_path / case.get("path", "home/lab/lock"))
    assert (found or ("",))[0].replace(f"{tmp_path}/", "") == (
        f"{case['found']}; other users could change what runs on the nodes" if case["found"] else ""
    )


@pytest.mark.usefixtures("accounts")
def test_access_control_list_counts_as_write_access_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an ACL of setfacl, the group bits of the mode are the mask for all entries of the list."""
    tmp_path.chmod(0o775)
    assert trusted.who_else_writes(tmp_path / "lock") is None
    monkeypatch.setattr(os, "listxattr", lambda path: ["system.posix_acl_access"] if path == str(tmp_path) else [])
    found = trusted.who_else_writes(tmp_path / "lock")
    assert found
    assert found[0].startswith(f"{tmp_path} is writable by the group root; ")


@pytest.mark.usefixtures("accounts")
def test_group_write_access_is_not_trusted_on_nodes(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    assert trust.foreign_writer(str(tmp_path)) == f"{tmp_path} is writable by the group root"
