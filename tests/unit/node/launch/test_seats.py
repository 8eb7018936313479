"""Locks of GPU and CPU slots, with real locks and processes."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import computing, seats, state
from muster_node.tools import files, process
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAUNCH_ID = "20260101-120000-abcd"
# Locks a file, prints the PID and exits at the end of stdin. `hand_on`: a child keeps the lock, the parent exits.
LOCK_FILE = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(handle, fcntl.LOCK_EX)
if "hand_on" in sys.argv and os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seats, "ROOT", str(tmp_path / "reservations"))
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "launches"))
    return tmp_path / "reservations"


@pytest.fixture
def launch(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that creates root's slot files for a launch and returns the launch folder."""

    def make(launch_id: str) -> str:
        folder = tmp_path / "launches" / launch_id
        folder.mkdir(parents=True)
        with seats.alone():
            seats.offer(str(folder), ["gpu-0", "gpu-1"], os.getgid())
        return str(folder)

    return make


@pytest.fixture
def hold() -> Iterator[Callable[..., int]]:
    """Return a function that starts a process holding a file lock and returns its PID."""
    started = []

    def start(path: Path, *how: str) -> int:
        argv = [sys.executable, "-c", LOCK_FILE, str(path), *how]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout
        return int(child.stdout.readline())

    yield start
    for child in started:
        child.communicate()


def pids(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[int]]:
    return {seat: [one["pid"] for one in holders] for seat, holders in found.items()}


def test_slots_are_free_before_the_first_launch() -> None:
    assert seats.held() == {}


def test_second_launch_waits_for_the_slots_of_the_first(launch: Callable[[str], str]) -> None:
    one, other = (seats.Seats(launch(name), shared=False) for name in ("one", "other"))
    one.take()
    other.take()
    assert (one.missing, len(other.missing)) == ([], 2)
    assert pids(seats.held()) == {"gpu-0": [os.getpid()], "gpu-1": [os.getpid()]}
    one.let_go()
    other.take()
    assert other.missing == []


def test_all_slots_are_locked_or_none(launch: Callable[[str], str], root: Path, hold: Callable[..., int]) -> None:
    ours = seats.Seats(launch("one"), shared=False)
    pid = hold(root / "gpu-1")
    ours.take()
    assert pids(seats.held()) == {"gpu-0": [], "gpu-1": [pid]}


def test_shared_launches_share_slots_and_exclude_other_launches(launch: Callable[[str], str]) -> None:
    one, other = (seats.Seats(launch(name), shared=True) for name in ("one", "other"))
    alone = seats.Seats(launch("alone"), shared=False)
    for each in (one, other, alone):
        each.take()
    assert (one.missing, other.missing, len(alone.missing)) == ([], [], 2)


def test_slot_locks_are_not_inherited(launch: Callable[[str], str]) -> None:
    ours = seats.Seats(launch("one"), shared=False)
    assert not any(map(os.get_inheritable, ours.handles))


def test_slot_holder_is_reported(launch: Callable[[str], str], root: Path, hold: Callable[..., int]) -> None:
    launch("one")
    pid = hold(root / "gpu-0")
    (found,) = seats.held(["gpu-0"])["gpu-0"]
    assert (found["pid"], found["launch_id"], found["begun"], found["detached"]) == (pid, "", False, False)
    assert found["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert str(root / "gpu-0") in found["command"] or "fcntl" in found["command"]
    assert 0 <= found["seconds"] < 600
    os.kill(pid, 9)
    while process.runs(pid):
        pass
    assert seats.held(["gpu-0"]) == {"gpu-0": []}


def test_process_that_waits_is_not_a_holder(launch: Callable[[str], str], root: Path, hold: Callable[..., int]) -> None:
    launch("one")
    pid = hold(root / "gpu-0")
    waiting = subprocess.Popen([sys.executable, "-c", LOCK_FILE, str(root / "gpu-0")], stdin=subprocess.PIPE)
    while f"-> FLOCK  ADVISORY  WRITE {waiting.pid} " not in Path("/proc/locks").read_text() and waiting.poll() is None:
        pass
    assert pids(seats.held(["gpu-0"])) == {"gpu-0": [pid]}
    waiting.kill()
    waiting.communicate()


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees open files of other users")
def test_inherited_lock_does_not_hide_its_holder(
    launch: Callable[[str], str], root: Path, hold: Callable[..., int]
) -> None:
    launch("one")
    pid = hold(root / "gpu-0", "hand_on")
    assert pids(seats.held(["gpu-0"], thorough=True)) == {"gpu-0": [pid]}


def test_slots_can_be_requested_and_released(launch: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = launch(LAUNCH_ID)
    Path(folder, "lease").write_bytes(state.new_lease(1.0, state.TAKE))
    own = os.getpid()
    monkeypatch.setattr(process, "launch_at", lambda pid: process.LaunchUnit(LAUNCH_ID) if pid == own else None)
    monkeypatch.setattr(state, "unit_state", lambda _unit: {"ActiveState": "active"})
    request = {"launch_id": LAUNCH_ID, "take": True, "wait": 0.0, "lease": 60.0}
    assert pids(seats.reserve(request)["held"]) == {"gpu-0": [], "gpu-1": []}
    ours = seats.Seats(folder, shared=False)
    ours.take()
    seen = seats.reserve({**request, "wait": 600.0})
    assert (pids(seen["held"]), seen["over"]) == ({"gpu-0": [os.getpid()], "gpu-1": [os.getpid()]}, False)
    assert state.lease(folder)[1] == state.TAKE
    seats.reserve({**request, "take": False})
    assert state.lease(folder)[1] == state.LET_GO
    state.renew_lease(folder, float("inf"))
    assert seats.holder(os.getpid())["detached"] is True


def test_many_blocking_holders_do_not_block_the_check(
    launch: Callable[[str], str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate 999 processes that hold the lock and block reads of their command lines."""
    launch("one")
    (table,) = {seats.name_of((root / seat).stat()) for seat in ("gpu-0",)}
    monkeypatch.setattr(seats, "locks", lambda: {table: list(range(1, 1000))})
    monkeypatch.setattr(process, "runs", lambda _pid: True)
    monkeypatch.setattr(process, "who", lambda _pid: time.sleep(60))
    monkeypatch.setattr(seats, "HOLDERS_SECONDS", 1.0)
    began = time.monotonic()
    found = seats.held(["gpu-0"])["gpu-0"]
    assert time.monotonic() - began < 30  # half of the time that one process blocks
    assert [one["pid"] for one in found] == list(range(1, seats.MOST_HOLDERS + 1))


def test_locks_of_other_users_do_not_hide_slot_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can hold as many locks as open files, and the kernel lists the newest locks first."""
    lines = "".join(f"{number}: FLOCK  ADVISORY  WRITE 99 00:1a:{number} 0 EOF\n" for number in range(200_000))
    table = f"{lines}200000: FLOCK  ADVISORY  WRITE 7 00:19:5 0 EOF\n".encode()
    monkeypatch.setattr(files, "part", lambda _path, begin, most, **_how: table[begin : begin + most])
    assert seats.locks()["00:19:5"] == [7]


def test_launches_start_one_at_a_time(root: Path) -> None:
    with seats.alone():
        handle = os.open(root.parent / seats.STARTS, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


# ---------------------------------------------------------------- GPU processes


def smi(monkeypatch: pytest.MonkeyPatch, **answers: CommandResult) -> list[str]:
    """Replace nvidia-smi with a stub that has one answer per kind of query. Return the list of queries."""
    asked: list[str] = []

    def run(_program: str, question: str, *_how: str, **_more: Any) -> CommandResult:
        asked.append(question)
        return answers["gpus" if question.startswith("--query-gpu=") else "apps"]

    monkeypatch.setattr(computing, "run", run)
    return asked


GPUS = CommandResult("0, GPU-aa\n1, GPU-bb\n", code=0)


def test_gpu_processes_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, gpus=GPUS, apps=CommandResult(f"GPU-bb, {os.getpid()}\nGPU-bb, [N/A]\nGPU-cc, 1\n", code=0))
    found = computing.computing(gpus=True)
    assert (pids(found["computing"]), found["uuids"], found["why"]) == (
        {"gpu-1": [os.getpid(), None]},
        ["GPU-aa", "GPU-bb"],
        "",
    )


def test_cpu_launch_does_not_run_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = smi(monkeypatch)
    assert computing.computing(gpus=False) == {"computing": {}, "uuids": [], "why": ""}
    assert asked == []


@pytest.mark.parametrize("failing", ["gpus", "apps"])
def test_failed_nvidia_smi_is_reported(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    late = CommandResult("", "nvidia-smi did not answer within 12 s", late=True)
    smi(monkeypatch, **{"gpus": GPUS, "apps": CommandResult("", code=0), failing: late})
    assert computing.computing(gpus=True)["why"] == "nvidia-smi did not answer within 12 s"
