"""What is seen of a node beside what the role node_baseline asks of it, and who is waited for."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.baseline import idle, look

if TYPE_CHECKING:
    from pathlib import Path

HOLD = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for absent in (path, tmp_path, tmp_path / "one/two"):
        assert look.look_at_file(str(absent)) is None
    path.write_bytes(b"a\xff")
    path.chmod(0o640)
    owner, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    assert look.look_at_file(str(path)) == look.model.SeenFile("a\ufffd", "0640", owner, group)


@pytest.mark.parametrize(("mode", "writable", "read_only"), [(0o644, True, 0), (0o444, True, 1), (0o644, False, 1)])
def test_a_kernel_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, writable: bool, read_only: int
) -> None:
    monkeypatch.setattr(look.model.Key, "path", property(lambda key: f"{tmp_path}/{key.key}"))
    (tmp_path / "a.b").write_text("4096\t9\n")
    (tmp_path / "a.b").chmod(mode)
    monkeypatch.setattr(look.os, "access", lambda _path, how: writable and how == os.W_OK)
    keys = [look.model.Key("a.b", "1"), look.model.Key("none", "1")]
    assert look.look_at_sysctl(keys) == ({"a.b": "4096\t9", "none": None}, frozenset(["a.b"][:read_only]))


def test_units(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "Id=a\nExecMainStartTimestampMonotonic=2000000\n\nId=b\nActiveEnterTimestampMonotonic=3000000\n\nId=c\n"
    said = subprocess.CompletedProcess([], 0, shown, "")
    monkeypatch.setattr(look.subprocess, "run", lambda argv, **_: said if argv[3:] == ("a", "b", "c") else None)
    monkeypatch.setattr(look.time, "clock_gettime", lambda _clock: 100.0)
    monkeypatch.setattr(look.time, "time", lambda: 1000.0)
    units = look.look_at_units(["a", "b", "a", "c"])
    assert {name: unit["Started"] for name, unit in units.items()} == {"a": 902.0, "b": 903.0, "c": 0.0}
    assert units["a"]["Id"] == "a"
    assert look.look_at_units([]) == {}
    monkeypatch.setattr(look.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(OSError))
    assert look.show("systemctl") == []


def test_what_dpkg_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "DPKG", tmp_path)
    assert look.dpkg_interrupted() is False
    (tmp_path / "updates").mkdir()
    (tmp_path / "updates/tmp.i").touch()
    assert look.dpkg_interrupted() is False
    (tmp_path / "updates/0001").touch()
    assert look.dpkg_interrupted() is True


def test_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    user: Any = look.model.Account(name="nobody-here", uid="0", gid="none")
    assert look.look_at_account(user) is None
    assert look.look_at_owners(user) == {"uid 0": "root"}


def test_whoever_holds_a_lock_of_packages_is_named_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setattr(idle, "LOCKS", (tmp_path / "none", lock))
    monkeypatch.setattr(idle, "cloud_init_at_work", lambda: "")
    assert idle.package_tools_at_work() == ""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == "held\n"
        name = os.path.basename(os.readlink(f"/proc/{holder.pid}/exe"))[:15]
        at_work = f"(pid {holder.pid}), which holds {lock}"
        assert idle.package_tools_at_work().endswith(at_work)
        assert name.startswith("python")
        idle.wait_until_idle(0, packages=False)
        with pytest.raises(idle.RefusedError, match="is still at work after 0 s. Let it end, and run again"):
            idle.wait_until_idle(0, packages=True)
        # It ends while it is waited for.
        monkeypatch.setattr(idle.time, "sleep", lambda _seconds: holder.stdin and (holder.stdin.close(), holder.wait()))
        idle.wait_until_idle(60, packages=True)
    with lock.open("r+") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)  # one of this process itself is none that it would have to wait for
        assert idle.package_tools_at_work() == ""


@pytest.mark.parametrize(
    ("units", "busy"),
    [
        ({"a.service": {"ActiveState": "active"}}, ""),
        ({"a.service": {"ActiveState": "activating"}, "b": {"ActiveState": "active"}}, "a.service"),
        ({"a.service": {"ActiveState": "inactive", "Job": "7"}}, "a.service"),
        ({"a.service": {"ActiveState": "inactive", "Job": "0"}}, ""),
    ],
)
def test_cloud_init(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, units: dict[str, Any], busy: str) -> None:
    said = f"cloud-init ({busy}; see: cloud-init status --long)" if busy else ""
    monkeypatch.setattr(idle, "look_at_units", lambda names: units if "cloud-init-local.service" in names else {})
    monkeypatch.setattr(idle, "Path", lambda path: tmp_path if path == "/run/cloud-init" else None)
    assert idle.cloud_init_at_work() == said
    monkeypatch.setattr(idle, "Path", lambda _path: tmp_path / "none")
    assert idle.cloud_init_at_work() == ""
