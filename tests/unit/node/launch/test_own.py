"""User launches: facts about the user's systemd manager, and where the launch state is stored."""

from __future__ import annotations

import grp
import os
import pwd
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from muster.launch import failure
from muster_node.launch import looking, own, seats, state
from muster_node.tools import process
from muster_node.tools.as_user import as_user
from muster_node.tools.run import CLEAN, CommandResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAUNCH_ID = "20260101-120000-abcd"
STATUS = "Name:\tsystemd\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t27 998 1000 \n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""


@pytest.fixture(autouse=True)
def reset_manager() -> Iterator[None]:
    yield
    state.use(own=False)


def group(monkeypatch: pytest.MonkeyPatch, gid: int | None) -> None:
    def getgrnam(name: str) -> Any:
        if gid is None:
            raise KeyError(name)
        return SimpleNamespace(gr_gid=gid)

    monkeypatch.setattr(grp, "getgrnam", getgrnam)


def test_launch_users_are_members_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    for gid, able in ((nobody.pw_gid, True), (4711, False), (None, False)):
        group(monkeypatch, gid)
        assert own.is_launch_user(nobody) is able
    group(monkeypatch, 0)
    assert not own.is_launch_user(pwd.getpwuid(0)), "root has only administrator launches"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
def test_root_acts_as_the_user_of_a_user_launch() -> None:
    nobody = pwd.getpwnam("nobody")

    def done() -> Any:
        return state.in_its_manager(lambda _: {"uids": os.getresuid(), "groups": os.getgroups(), "root": state.root()})(
            {"own": True, "as": "nobody"}
        )

    found = as_user(None, done)
    assert found["uids"] == [nobody.pw_uid] * 3
    assert 0 not in found["groups"]
    assert found["root"] == state.OWN_ROOT.format(nobody.pw_uid)


@pytest.mark.parametrize(("who", "name"), [("nobody", "daemon"), (None, "root"), ("nobody", "root")])
def test_acting_as_another_user_or_root_is_rejected(who: str | None, name: str) -> None:
    def done() -> str:
        with pytest.raises(PermissionError) as refused:
            state.in_its_manager(lambda request: request)({"own": True, "as": name})
        return str(refused.value)

    if os.geteuid() != 0:
        pytest.skip("only root can switch to another user")
    found = as_user(pwd.getpwnam(who) if who else None, done)
    assert found == f"uid {pwd.getpwnam(who or 'root').pw_uid} cannot act as {name}"


@pytest.mark.parametrize(("gid", "knows"), [(998, True), (1000, True), (99, False), (None, False)])
def test_systemd_manager_without_the_new_group_is_detected(
    gid: int | None, *, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "read", lambda _pid, _name: STATUS)
    group(monkeypatch, gid)
    assert own.knows_group(441) is knows


def test_unreadable_manager_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "read", lambda _pid, _name: "")
    assert own.knows_group(0)
    assert own.limits(0) == {}


def test_unit_limits_are_the_hard_limits_of_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "read", lambda _pid, _name: LIMITS)
    assert own.limits(441) == {"memlock": None, "nofile": 524288}


def test_delegated_controllers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "CGROUPS", str(tmp_path))
    assert own.controllers(1000) == []
    folder = tmp_path / "user.slice/user-1000.slice/user@1000.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("memory pids\n")
    assert own.controllers(1000) == ["memory", "pids"]


def test_user_launch_uses_the_users_folder_and_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def command(*argv: str, **how: Any) -> CommandResult:
        asked.append((argv, how.get("env")))
        return CommandResult("", code=0)

    monkeypatch.setattr(state, "command", command)
    uid = os.getuid()
    verb = state.in_its_manager(lambda _request: {"dir": state.state_dir(LAUNCH_ID), "is": state.launch(LAUNCH_ID)})
    assert verb({"own": True}) == {
        "dir": f"/run/user/{uid}/muster/launches/{LAUNCH_ID}",
        "is": process.LaunchUnit(LAUNCH_ID, uid),
    }
    state.systemctl("stop", "x.service")
    assert verb({"own": False}) == {"dir": f"/run/muster/launches/{LAUNCH_ID}", "is": process.LaunchUnit(LAUNCH_ID)}
    assert verb({}) == verb({"own": "yes"}) == verb({"own": False})
    state.systemctl("stop", "x.service")
    assert asked == [
        (("systemctl", "--user", "stop", "x.service"), {**CLEAN, "XDG_RUNTIME_DIR": f"/run/user/{uid}"}),
        (("systemctl", "stop", "x.service"), None),
    ]


def test_user_launches_end_when_their_systemd_manager_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "command", lambda *_argv, **_how: CommandResult("", "no medium found", code=1))
    monkeypatch.setattr(state, "runtime_dir", lambda: str(tmp_path))
    assert not state.is_over(LAUNCH_ID), "only user managers are checked"
    state.use(own=True)
    assert state.unit_state("x.service")["Result"] == failure.NO_MANAGER
    assert state.is_over(LAUNCH_ID)
    (tmp_path / "systemd").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "systemd/private"))
        sock.listen(1)
        assert not state.is_over(LAUNCH_ID), "the manager runs, but does not answer"
    assert state.is_over(LAUNCH_ID), "only the socket file of the manager remains"


def test_manager_that_ends_during_the_check_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {"LoadState": "not-found", "ActiveState": "inactive"}
    success, gone = {**ended, "Result": "success"}, {**ended, "Result": failure.NO_MANAGER}
    seen = iter([success, success, gone])
    monkeypatch.setattr(state, "unit_state", lambda _unit: next(seen))
    request = {"launch_id": LAUNCH_ID, "run_dir": "/nowhere"}
    assert looking.report(request)["unit"] == success, "the system manager still runs"
    state.use(own=True)
    assert looking.report(request)["unit"] == gone


def test_user_launch_uses_the_slots_of_administrator_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "ROOT", str(tmp_path / "reservations"))
    monkeypatch.setattr(state, "OWN_ROOT", str(tmp_path / "{}"))
    assert seats.readable() == []
    (tmp_path / "reservations").mkdir()
    (tmp_path / "reservations/cpu").touch()
    folder = tmp_path / LAUNCH_ID
    folder.mkdir()
    state.use(own=True)
    with seats.alone():
        seats.offer(str(folder), ["cpu"], os.getgid())
    assert sorted(one.name for one in (tmp_path / "reservations").iterdir()) == seats.readable() == ["cpu"]
    ours = seats.Seats(str(folder), shared=False)
    ours.take()
    ((found,),) = seats.held(["cpu"]).values()
    assert (ours.missing, found["pid"], found["ours"]) == ([], os.getpid(), False)


def test_holder_with_the_same_id_in_another_manager_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "ROOT", str(tmp_path / "reservations"))
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "launches"))
    monkeypatch.setattr(state, "unit_state", lambda _unit: {"ActiveState": "active"})
    folder = tmp_path / "launches" / LAUNCH_ID
    folder.mkdir(parents=True)
    with seats.alone():
        seats.offer(str(folder), ["cpu"], os.getgid())
    holder = seats.Seats(str(folder), shared=False)
    holder.take()
    us = os.getpid()
    for launch, ours in ((process.LaunchUnit(LAUNCH_ID), True), (process.LaunchUnit(LAUNCH_ID, 1007), False)):
        monkeypatch.setattr(process, "launch_at", lambda pid, one=launch: one if pid == us else None)
        (found,) = seats.reserved(LAUNCH_ID, 0.0)["held"]["cpu"]
        assert (found["ours"], found["launch_id"]) == (ours, LAUNCH_ID)
