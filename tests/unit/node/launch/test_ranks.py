"""Detection of a launch's ranks, with real processes in the control group of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster_node.launch import ranks
from muster_node.launch.ranks import Ranks
from muster_node.tools import process as processes
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

RANK_5 = {"RANK": "5", "LOCAL_RANK": "1"}
HIDDEN = "hidden"  # the list of the control group's processes cannot be read


@contextlib.contextmanager
def process(*argv: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process. Kill it with its children at the end."""
    child = subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture(params=["listed", HIDDEN])
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Provide or hide the process list of the control group. Descendants of this process simulate the list."""
    monkeypatch.setattr(ranks, "control_group", str)
    if request.param != HIDDEN:
        monkeypatch.setattr(Ranks, "members", lambda self: descendants(self.agent))
    return str(request.param)


def descendants(pid: int) -> set[int]:
    found, new = set[int](), [pid]
    while new:
        found.add(new[0])
        new = [*new[1:], *processes.children(new[0])]
    return found


def pids(found: Ranks) -> dict[int, tuple[int, int]]:
    return {pid: (rank["rank"], rank["local_rank"]) for pid, rank in found.table.items()}


@pytest.mark.usefixtures("group")
def test_children_with_rank_variables_are_ranks() -> None:
    found = Ranks(os.getpid())
    with process("sleep", "60", **RANK_5) as one, process("sleep", "60", RANK="x") as other:
        until(found.look)
        facts = ranks.process_facts(one.pid) or {}
        assert found.table == {one.pid: {"rank": 5, "local_rank": 1, **facts, "gone_at": None}}
        assert other.pid in processes.children(os.getpid())
        assert found.look() is False
        began = time.time()
        os.kill(one.pid, signal.SIGKILL)  # a zombie counts as gone
        until(found.look)
        assert began <= found.table[one.pid]["gone_at"] <= time.time()
        assert found.look() is False


@pytest.mark.usefixtures("group")
def test_ranks_below_a_shell_script_are_found() -> None:
    """Children of a rank inherit its environment variables, but are not ranks."""
    script = "RANK=2 LOCAL_RANK=0 sh -c 'sleep 60 & sleep 61 & wait' & RANK=3 LOCAL_RANK=1 sleep 62 & wait"
    with process("sh", "-c", f'sh -c "{script}" & wait') as shell:
        found = Ranks(shell.pid)
        until(lambda: found.look() and len(found.table) == 2)
        assert sorted(pids(found).values()) == [(2, 0), (3, 1)]
        until(lambda: len(descendants(shell.pid)) == 6)
        found.look()
        assert len(found.table) == 2


def test_child_of_a_dead_rank_is_not_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "control_group", str)
    with process("sh", "-c", "sleep 60 & echo $! >&2; sleep 61", **RANK_5) as rank:
        seen: set[int] = {rank.pid, os.getpid()}
        monkeypatch.setattr(Ranks, "members", lambda _self: seen)
        found = Ranks(os.getpid())
        until(found.look)
        child = until(lambda: processes.children(rank.pid))[0]
        os.kill(rank.pid, signal.SIGKILL)
        rank.wait()
        seen.add(child)  # first seen after its parent has ended
        until(found.look)
        assert list(found.table) == [rank.pid]
        assert found.look() is False


def test_background_rank_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent of the rank has exited, but the control group still lists the rank."""
    monkeypatch.setattr(ranks, "control_group", str)
    with process("sh", "-c", "(RANK=0 LOCAL_RANK=0 sleep 60 & echo $!) & sleep 60") as shell:
        background = until(
            lambda: [pid for pid in processes.ids() if ranks.rank_facts(pid) and session(pid) == shell.pid]
        )[0]
        until(lambda: parent(background) != shell.pid)
        monkeypatch.setattr(Ranks, "members", lambda _self: {shell.pid, background})
        found = Ranks(shell.pid)
        assert found.look()
        assert pids(found) == {background: (0, 0)}


def test_rank_of_another_launch_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "control_group", str)
    with process("sleep", "60") as agent, process("sleep", "60", MUSTER_LAUNCH_ID="other", **RANK_5) as other:
        monkeypatch.setattr(Ranks, "members", lambda _self: {agent.pid, other.pid})
        found = Ranks(agent.pid)
        until(lambda: ranks.rank_facts(other.pid))
        assert found.look() is False
        assert found.table == {}


def session(pid: int) -> int:
    return int(processes.read(pid, "stat").rpartition(")")[2].split()[3])


def parent(pid: int) -> int:
    seen = processes.status(pid)
    return seen.parent if seen else 0


def test_process_that_becomes_a_rank_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "control_group", str)
    monkeypatch.setattr(ranks, "YOUNG", 0.1)
    monkeypatch.setattr(ranks, "PAUSE", 0.2)
    with process("sh", "-c", "sleep 1; RANK=0 LOCAL_RANK=0 exec sleep 60") as one:
        found = Ranks(os.getpid())
        until(found.look)
        assert pids(found) == {one.pid: (0, 0)}


def test_control_group_contains_this_process() -> None:
    group = ranks.control_group()
    if not group:
        pytest.skip("the control group is not readable")
    assert str(os.getpid()) in Path(group, "cgroup.procs").read_text(encoding="ascii").split()
