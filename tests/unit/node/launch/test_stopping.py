"""Which processes receive signals and which are reported as leftovers, with real processes of several users."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import ranks, state, stopping, written
from muster_node.tools import process
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run processes of several users")
LAUNCH_ID = "20260101-120000-abcd"
NOBODY = pwd.getpwnam("nobody")
# A user ID without other processes. Each test process uses a different one.
UID = 20000 + os.getpid() % 20000
ALONE = pwd.struct_passwd(("muster-test", "x", UID, UID, "", "/nonexistent", "/usr/sbin/nologin"))
MARK = {process.LAUNCH_MARK: LAUNCH_ID}


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the state folder of a launch that the training user can write to."""
    folder = Path(tempfile.mkdtemp(prefix="muster-test-"))
    folder.chmod(0o755)
    monkeypatch.setattr(state, "STATE_ROOT", str(folder))
    monkeypatch.setattr(stopping, "PATIENCE", 0.0)
    path = folder / LAUNCH_ID / "unit"
    path.mkdir(parents=True)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    lease = folder / LAUNCH_ID / "lease"
    lease.touch()
    os.chown(lease, 1, 1)
    yield path
    shutil.rmtree(folder)


@pytest.fixture
def start() -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that starts a process and returns its entry for the rank table."""
    with ExitStack() as ends:

        def begin(user: int = NOBODY.pw_uid, **env: str) -> dict[str, Any]:
            group = NOBODY.pw_gid if user == NOBODY.pw_uid else user
            child = ends.enter_context(subprocess.Popen(["sleep", "3600"], env=env, user=user, group=group))
            ends.callback(child.kill)
            while process.executable(child.pid) != os.path.realpath(shutil.which("sleep") or ""):
                assert child.poll() is None
            facts = ranks.process_facts(child.pid)
            assert facts
            return {"rank": 0, "local_rank": 0, **facts, "gone_at": None}

        yield begin


def stopped(pid: int) -> bool:
    seen = process.status(pid)
    return seen is not None and seen.state == "T"


def table(unit: Path, *ranks: dict[str, Any], agent: Any = None) -> None:
    path = unit / "ranks.json"
    path.write_text(json.dumps({"agent": agent, "ranks": ranks, "notes": []}))
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)


def test_only_processes_of_the_launch_are_stopped(unit: Path, start: Callable[..., dict[str, Any]]) -> None:
    own, unmarked = start(**MARK), start()
    roots, of_daemon = start(0, **MARK), start(1, **MARK)
    later = {**start(**MARK), "started": 1}
    table(unit, own, unmarked, roots, of_daemon, later, agent=roots)
    assert stopping.freeze({"launch_id": LAUNCH_ID}) == {"frozen": 1}
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, own["pid"], os.WSTOPPED | os.WNOWAIT)
    assert stopped(own["pid"])
    assert not any(stopped(one["pid"]) for one in (unmarked, roots, of_daemon, later))


def test_no_signals_are_sent_without_a_launch(unit: Path, start: Callable[..., dict[str, Any]]) -> None:
    table(unit, start(**MARK))
    assert stopping.freeze({"launch_id": "20260101-120000-0000"}) == {"frozen": 0}
    assert stopping.send(LAUNCH_ID, [signal.SIGKILL], []) == []


def leftovers(user: pwd.struct_passwd = ALONE) -> list[int]:
    found, unseen = stopping.leftovers(LAUNCH_ID, user)
    assert unseen == ""
    return [one["pid"] for one in found]


def test_remaining_processes_of_launch_account_are_leftovers(unit: Path, start: Callable[..., dict[str, Any]]) -> None:
    marked, over_ssh, _foreign = start(UID, **MARK)["pid"], start(UID)["pid"], start(1, **MARK)
    assert sorted(leftovers()) == sorted([marked, over_ssh])


def test_jobs_of_slurm_are_no_leftovers(
    unit: Path, start: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm can run jobs of the same account beside a launch in the job's allocation."""
    job, left = start(UID)["pid"], start(UID)["pid"]
    units = {job: "slurmstepd.scope", left: "session-1.scope"}
    monkeypatch.setattr(process, "outermost_unit", lambda pid: units.get(pid, ""))
    assert leftovers() == [left]


@pytest.mark.parametrize("why", ["login account", "supervising account", "another launch"])
def test_only_marked_processes_of_other_accounts_are_leftovers(
    unit: Path, start: Callable[..., dict[str, Any]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked, _other = start(UID, **MARK)["pid"], start(UID)
    user = ALONE
    if why == "login account":
        user = pwd.struct_passwd((*ALONE[:6], "/bin/bash"))
    if why == "supervising account":
        os.chown(unit.parent / "lease", UID, UID)
    if why == "another launch":
        (Path(state.STATE_ROOT) / "20260101-130000-abcd").mkdir()
        monkeypatch.setattr(state, "command", lambda *_argv, **_how: CommandResult("ActiveState=active\n", code=0))
    assert leftovers(user) == [marked]


def test_account_created_by_muster_is_a_launch_account(unit: Path) -> None:
    made = pwd.struct_passwd(("x", "x", 4242, 4242, stopping.MADE_BY_MUSTER, "/home/x", "/bin/bash"))
    assert stopping.belongs_to_launches(LAUNCH_ID, made)
    data = (Path(__file__).parents[4] / "roles/node_baseline/vars/main.yml").read_text()
    assert f"_node_baseline_user_comment: {stopping.MADE_BY_MUSTER}\n" in data


def test_leftovers_are_unknown_if_the_check_times_out(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SECONDS", 0.0)
    assert stopping.leftovers(LAUNCH_ID, NOBODY) == (
        [],
        "its processes could not be checked: no result within the time limit",
    )


def test_only_running_ranks_of_the_launch_have_a_state(unit: Path, start: Callable[..., dict[str, Any]]) -> None:
    own, foreign = start(**MARK), start(1, **MARK)
    later, gone = {**start(**MARK), "started": 1}, {**own, "pid": 4_000_000}
    table(unit, own, foreign, later, gone)
    request = {"launch_id": LAUNCH_ID, "run_dir": str(unit), "offsets": {}, "limit": 100}
    found = written.read_all(request)
    assert [(rank["pid"], rank["state"]) for rank in found["ranks"]] == [
        (own["pid"], "S"),
        (foreign["pid"], ""),
        (later["pid"], ""),
        (gone["pid"], ""),
    ]
    assert found["ranks"][0]["wchan"] == process.read(own["pid"], "wchan")
    assert [rank["wchan"] for rank in found["ranks"][1:]] == ["", "", ""]
