"""Facts about real processes of this machine."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muster.launch import unit
from muster_node.tools import process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAUNCH = "20260101-120000-abcd"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "MUSTER_LAUNCH_ID": LAUNCH}
    with subprocess.Popen(["cat", "a) b", "-"], stdin=subprocess.PIPE, env=env) as started:
        yield started
        started.kill()


def test_running_process_is_described(child: subprocess.Popen[bytes]) -> None:
    seen = process.status(child.pid)
    assert seen is not None
    assert seen.parent == os.getpid()
    assert process.runs(child.pid)
    assert process.runs(child.pid, seen.started)
    assert not process.runs(child.pid, seen.started + 1)
    assert child.pid in process.ids()
    assert child.pid in process.children(os.getpid())
    assert process.owner(child.pid) == pwd.getpwuid(os.getuid()).pw_name


def test_zombie_does_not_count_as_running(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.runs(child.pid)
    child.wait()
    assert process.status(child.pid) is None
    assert process.who(child.pid) == {"pid": child.pid, "command": "", "user": "", "unit": ""}
    assert process.environment(child.pid) == {}
    assert process.opened(child.pid) == set()
    assert process.children(child.pid) == []
    assert not process.runs(0)


def test_stopped_and_zombie_states_are_reported(child: subprocess.Popen[bytes]) -> None:
    for number, state in ((signal.SIGSTOP, "T"), (signal.SIGKILL, "Z")):
        child.send_signal(number)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        seen = process.status(child.pid)
        assert seen is not None
        assert seen.state == state


def test_process_name_that_imitates_stat_fields_is_parsed(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/cat")
    with subprocess.Popen([str(odd)], stdin=subprocess.PIPE) as child:
        seen = process.status(child.pid)
        child.kill()
    assert seen is not None
    assert seen.state != "Z"
    assert seen.parent == os.getpid()


def test_launch_processes_are_recognized_by_an_environment_variable(child: subprocess.Popen[bytes]) -> None:
    while not process.words(child.pid):
        assert child.poll() is None
    launch = process.LaunchUnit(LAUNCH)
    assert process.is_of_launch(child.pid, launch, os.getuid())
    assert not process.is_of_launch(child.pid, process.LaunchUnit(LAUNCH[:-1]), os.getuid())
    assert not process.is_of_launch(child.pid, launch, os.getuid() + 1), "any user can set the mark"
    assert process.environment(child.pid)[process.LAUNCH_MARK] == LAUNCH


UNIT = f"muster-launch-{LAUNCH}.service"
OWN = "/user.slice/user-1000.slice/user@1000.service"
SYSTEM = process.LaunchUnit(LAUNCH)


@pytest.mark.parametrize(
    ("cgroup", "unit", "launch"),
    [
        ("0::/system.slice/ssh.service\n", "ssh.service", None),
        (f"0::/system.slice/{UNIT}\n", UNIT, SYSTEM),
        (f"0::/system.slice/{UNIT}/inner\n", "", SYSTEM),
        (f"0::/system.slice/{UNIT}/other.service\n", "other.service", SYSTEM),
        (f"12:pids:/x\n1:name=systemd:/system.slice/{UNIT}\n", UNIT, SYSTEM),
        (f"1:name=systemd:/system.slice/{UNIT}\n0::/\n", UNIT, SYSTEM),
        # A cgroup v1 tree can be listed although systemd uses only cgroup v2.
        (f"1:name=systemd:/\n0::/system.slice/{UNIT}\n", UNIT, SYSTEM),
        ("1:name=systemd:/\n0::/\n", "", None),
        # In a user's systemd manager the user chooses unit names, so a launch there belongs to that user.
        (f"0::{OWN}/app.slice/{UNIT}\n", UNIT, process.LaunchUnit(LAUNCH, 1000)),
        (f"0::{OWN}/{UNIT}/x.service\n", "x.service", process.LaunchUnit(LAUNCH, 1000)),
        (f"0::{OWN}/x.service/{UNIT}\n", UNIT, None),
        (f"0::/user.slice/user-1000.slice/session-3.scope/{UNIT}\n", UNIT, None),
        (f"0::/system.slice/user@x.service/{UNIT}\n", UNIT, None),
        (f"0::/system.slice/x{UNIT}\n", f"x{UNIT}", None),
        ("0::/system.slice/muster-launch-x.service\n", "muster-launch-x.service", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope", None),
        (f"0::/system.slice/muster-launch-{LAUNCH}.service/x.service\n", "x.service", SYSTEM),
        ("", "", None),
    ],
)
@pytest.mark.parametrize("beyond", ["", "/machine.slice/libpod-0123.scope/container"])
def test_units_are_read_from_control_groups(
    cgroup: str, unit: str, launch: process.LaunchUnit | None, beyond: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PID 1 is in init.scope of the tree that systemd uses, and at the root of the other tree.
    own, other = (1, 0) if "name=systemd:/system" in cgroup else (0, 1)
    tree = {0: "0:", 1: "1:name=systemd"}
    first = f"{tree[own]}:{beyond}/init.scope\n{tree[other]}:{beyond}/\n"
    if beyond:
        cgroup = cgroup.replace(":/", f":{beyond}/")
    monkeypatch.setattr(process, "read", lambda pid, _name: cgroup if pid > 1 else first)
    assert process.unit(2) == unit
    assert process.launch_at(2) == launch


def test_node_and_controller_agree_on_launch_ids_and_unit_names() -> None:
    assert (process.LAUNCH_UNIT, process.LAUNCH_MARK) == (unit.LAUNCH_UNIT, unit.LAUNCH_MARK)
    assert process.LAUNCH_ID.match(LAUNCH)
    assert not process.LAUNCH_ID.match(f"{LAUNCH}.kept")
    assert process.LAUNCH_UNIT.format(LAUNCH) == f"muster-launch-{LAUNCH}.service"


def test_self_chosen_process_name_is_quoted() -> None:
    name = '\x1b[2Jx" (1), run'  # the kernel keeps 15 bytes of a name
    wait = f"open('/proc/self/comm', 'w').write({name!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert process.read(child.pid, "comm") == f"{name}\n"
        assert process.shown(child.pid) == f'"?[2Jx? (1), run" ({child.pid})'
        child.kill()
    assert process.shown(child.pid) == f"a process ({child.pid})"
