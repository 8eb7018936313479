"""Snapshots of a launch on one node, with real processes of another user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.diagnosis import hand_typed
from muster.diagnosis.evidence import Agent, Snapshot
from muster.verdict import reading
from muster_node.diagnosis import agents, shots, snapshot, sockets
from muster_node.launch import state
from muster_node.tools import process
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muster.diagnosis.evidence import RankShot

LAUNCH_ID = "20260101-120000-abcd"
NOBODY = pwd.getpwnam("nobody")
MARK = {process.LAUNCH_MARK: LAUNCH_ID}
# Connects to a port, reports it, and waits to be ended.
TALKS = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print('on', flush=True);"
    " sys.stdin.read()"
)
KEY = "ab" * 32
UNKNOWN = 54321

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="muster-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def start(listener: socket.socket) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that starts a process connected to the listener, and returns its entry in the rank table."""
    begun = []

    def one(rank: int, local_rank: int, user: pwd.struct_passwd = NOBODY) -> dict[str, Any]:
        ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        other: dict[str, Any] = ids if user.pw_uid != os.getuid() else {}
        child = subprocess.Popen(
            ["/usr/bin/python3", "-S", "-c", TALKS, str(listener.getsockname()[1])],
            env={**os.environ, **MARK, "RANK": str(rank), "LOCAL_RANK": str(local_rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **other,
        )
        begun.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"on\n"
        seen = process.status(child.pid)
        assert seen is not None
        return {
            "rank": rank,
            "local_rank": local_rank,
            "pid": child.pid,
            "started": seen.started,
            "gone_at": None,
        }

    yield one
    for child in begun:
        child.kill()
        child.wait()
        child.communicate()


@pytest.fixture
def launch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return a function that creates the request for a launch with the given ranks, all owned by the user nobody."""

    def make(ranks: list[dict[str, Any]], *ports: int) -> dict[str, Any]:
        monkeypatch.setattr(state, "STATE_ROOT", str(folder))
        unit, log = folder / LAUNCH_ID / "unit", folder / "run/logs/torchrun/job/attempt_0/0"
        for path in (unit, log):
            path.mkdir(parents=True)
        (log / "stdout.log").write_text("step 1\n")
        (unit / "ranks.json").write_text(json.dumps({"agent": None, "ranks": ranks, "notes": []}))
        for path in [unit, *unit.iterdir(), *(folder / "run").rglob("*")]:
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        return {"launch_id": LAUNCH_ID, "run_dir": str(folder / "run"), "ports": list(ports)}

    return make


def read(found: dict[str, Any]) -> Snapshot:
    """Parse a snapshot as the controller does, and check that every part is valid."""
    taken, dropped = reading.read(Snapshot, json.loads(json.dumps(found)))
    assert dropped == ()
    seen: Snapshot = taken
    return seen


def by_rank(seen: Snapshot) -> dict[int, RankShot]:
    return {shot["rank"]: shot for shot in seen["ranks"]}


@as_root
def test_snapshot_describes_the_ranks(
    launch: Callable[..., dict[str, Any]], start: Callable[..., dict[str, Any]], listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    ranks = [start(4, 0), start(5, 1)]
    os.kill(ranks[1]["pid"], signal.SIGSTOP)
    until(lambda: state_of(ranks[1]["pid"]) == "T", PATIENCE, "it is stopped")
    seen = read(snapshot.snapshot(launch(ranks, port)))
    shots_ = by_rank(seen)
    assert {rank: shot["state"] for rank, shot in shots_.items()} == {4: "S", 5: "T"}
    for shot in shots_.values():
        assert shot["files"] > 2
        assert shot["threads"] == 1
        assert shot["memory"] > 1 << 20
        assert shot["stack_why"]
        [connection] = shot["sockets"]
        assert (connection["peer"], connection["state"]) == (f"127.0.0.1:{port}", "ESTABLISHED")
    assert shots_[4]["said"] is not None
    assert shots_[5]["said"] is None
    assert "frozen" in seen["unseen"]


@as_root
def test_flight_recorders_of_ended_ranks_are_read(launch: Callable[..., dict[str, Any]], folder: Path) -> None:
    gone = [{"rank": rank, "local_rank": rank, "pid": 70_000 + rank, "started": 1, "gone_at": 9.0} for rank in range(4)]
    request = launch(gone)
    observe = folder / LAUNCH_ID / "observe"
    observe.mkdir()
    left = {
        0: '{"entries": [], "pg_status": {"0": {"last_enqueued_collective": "7"}}}',
        1: "no JSON",
        2: '{"entries": [], "pg_status": {"0": {"last_enqueued_collective": "9"}}}',
    }
    for rank, text in left.items():
        (observe / f"{70_000 + rank}.last").write_text(text)
    for path in [observe, *observe.iterdir()]:
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    (observe / "70002.last").unlink()
    (observe / "70002.last").symlink_to(observe / "70000.last")  # links are not followed
    seen = read(snapshot.snapshot(request))
    assert seen["ranks"] == []
    assert seen["left"] == [{"rank": 0, "flight": {"group": "default_pg", "enqueued": 7, "last": []}}]


@as_root
def test_listeners_on_launch_ports_are_found(launch: Callable[..., dict[str, Any]], listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    [found] = read(snapshot.snapshot(launch([], port, 1)))["listeners"]
    assert (found["port"], found["address"], found["pid"], found["user"]) == (port, "127.0.0.1", os.getpid(), "root")
    assert "pytest" in found["command"] or "python" in found["command"]
    age = process.age(os.getpid())
    assert age is not None
    assert abs(found["started"] + age - time.time()) < 60


def test_half_open_connections_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(state: str, port: int, peer: str) -> sockets.Connection:
        return sockets.Connection(0, 0, state, ("192.0.2.1", port), (peer, 40000), 0, 0, None)

    calls = [
        call("SYN_RECV", 29500, "192.0.2.2"),
        call("SYN_RECV", 29500, "192.0.2.2"),
        call("SYN_RECV", 22, "192.0.2.9"),
        call("ESTABLISHED", 29500, "192.0.2.3"),
    ]
    monkeypatch.setattr(sockets, "connections", lambda: calls)
    assert snapshot.half_open([29500]) == ["192.0.2.2"]


@as_root
def test_only_processes_of_the_training_user_are_checked(
    launch: Callable[..., dict[str, Any]], start: Callable[..., dict[str, Any]]
) -> None:
    ours, gone, reused = start(0, 0), start(1, 1), start(2, 2)
    roots = start(3, 3, user=pwd.getpwuid(0))
    os.kill(gone["pid"], signal.SIGKILL)
    until(lambda: state_of(gone["pid"]) in ("", "Z"), PATIENCE, "it has ended")
    seen = read(snapshot.snapshot(launch([ours, gone, {**reused, "started": 1}, roots])))
    assert list(by_rank(seen)) == [0]


def test_snapshot_of_an_ended_launch_has_no_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path))
    seen = read(snapshot.snapshot({"launch_id": LAUNCH_ID, "run_dir": str(tmp_path / "run"), "ports": []}))
    assert (seen["ranks"], seen["frozen"]) == ([], None)
    assert {"ranks", "frozen"} <= set(seen["unseen"])


def state_of(pid: int) -> str:
    seen = process.status(pid)
    return seen.state if seen else ""


# ---------------------------------------------------------------- sockets


def test_netlink_and_proc_tables_agree(start: Callable[..., dict[str, Any]], listener: socket.socket) -> None:
    start(0, 0, user=pwd.getpwuid(os.getuid()))
    port = listener.getsockname()[1]

    def of(found: list[sockets.Connection]) -> set[tuple[Any, ...]]:
        return {
            (each.state, each.local, each.peer, each.uid, each.inode, each.queued)
            for each in found
            if port in (each.local[1], each.peer[1])
        }

    asked = [each for family in (socket.AF_INET, socket.AF_INET6) for each in sockets.asked(family, float("inf"))]
    tables = [each for path, family in sockets.TABLES.items() for each in sockets.table(Path(path).read_text(), family)]
    # The queue of a listener counts connections to be accepted, and only one of the two sources reports it.
    assert of([each for each in asked if each.state != sockets.LISTEN]) == of(
        [each for each in tables if each.state != sockets.LISTEN]
    )
    assert {each.state for each in asked if each.local[1] == port} == {"LISTEN", "ESTABLISHED"}
    idle = [each.idle for each in asked if each.peer[1] == port]
    assert len(idle) == 1
    assert idle[0] is not None


def test_ipv4_and_ipv6_addresses_are_decoded() -> None:
    text = (
        "  sl  local_address rem_address\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 42 1 0 100 0\n"
    )
    [found] = sockets.table(text, socket.AF_INET)
    assert (found.local, found.state, found.uid, found.inode) == (("127.0.0.1", 8080), "LISTEN", 998, 42)
    mapped = "0000000000000000FFFF00000B5FCB0A"
    [found] = sockets.table(
        f"title\n 0: {mapped}:7530 {mapped}:0016 02 00000040:00000000 01:00000100 00000003 0 0 7 1\n", socket.AF_INET6
    )
    assert (found.local, found.peer, found.state) == (("10.203.95.11", 30000), ("10.203.95.11", 22), "SYN_SENT")
    assert (found.queued, found.retransmits, found.idle) == (64, 3, None)


def test_connections_with_retransmits_are_listed_first() -> None:
    def one(number: int, peer: str, retransmits: int = 0) -> sockets.Connection:
        return sockets.Connection(number, 0, "ESTABLISHED", ("192.0.2.1", 1), (peer, number), 0, retransmits, 0.0)

    many = [one(number, "192.0.2.1") for number in range(100)]
    found = shots.shown([*many, one(200, "192.0.2.2"), one(201, "192.0.2.3", 4)])
    assert len(found) == shots.MOST_SOCKETS
    assert [each["peer"] for each in found[:3]] == ["192.0.2.3:201", "192.0.2.2:200", "192.0.2.1:0"]


# ---------------------------------------------------------------- agents


@as_root
def test_launchers_and_ranks_without_a_launcher_are_found(folder: Path) -> None:
    """Start a torchrun with two ranks, one of which has a child process, and a rank started without a launcher."""
    torchrun = folder / "torchrun"
    torchrun.write_text(
        f"#!{sys.executable} -S\n"
        "import os, subprocess, sys\n"
        "child = [sys.executable, '-S', '-c', 'import subprocess, sys; subprocess.run([\"cat\"])']\n"
        "for rank in '01':\n"
        "    subprocess.Popen(child, env={'RANK': rank, 'LOCAL_RANK': rank, 'TOKEN': 'a-secret-value'})\n"
        "sys.stdin.read()\n"
    )
    torchrun.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HF_TOKEN": "a-secret-value"}
    begun = [
        subprocess.Popen([torchrun, "--nnodes=2", "train.py"], env=env, stdin=subprocess.PIPE, start_new_session=True),
        subprocess.Popen(["cat"], env={**env, "RANK": "7"}, stdin=subprocess.PIPE, user=NOBODY.pw_uid),
        # Like in a container, whose users have no names on the node.
        subprocess.Popen(["cat"], env={**env, "RANK": "8"}, stdin=subprocess.PIPE, user=UNKNOWN, group=UNKNOWN),
    ]

    def ours() -> dict[int, Any]:
        found = json.loads(json.dumps(agents.agents({"key": KEY})))
        taken, whole = reading.read_all(Agent, found["agents"])
        assert whole
        return {agent["pid"]: agent for agent in taken if agent["pid"] in [child.pid for child in begun]}

    try:
        until(lambda: sorted(len(one["ranks"]) for one in ours().values()) == [1, 1, 2], PATIENCE, "all are there")
        found = ours()
        first, second, third = (found[child.pid] for child in begun)
        assert first["argv"][-2:] == ["--nnodes=2", "train.py"]
        assert sorted((one["rank"], one["local_rank"]) for one in first["ranks"]) == [(0, 0), (1, 1)]
        assert (second["user"], [one["rank"] for one in second["ranks"]]) == ("nobody", [7])
        assert (third["user"], [one["rank"] for one in third["ranks"]]) == (str(UNKNOWN), [8])
        # The same value has the same digest under the same key, and the value itself is not stored.
        assert first["environment"]["HF_TOKEN"] == second["environment"]["HF_TOKEN"]
        assert "a-secret-value" not in json.dumps([first, second])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(begun[0].pid, signal.SIGKILL)
        for child in begun:
            child.kill()
            child.communicate()


@as_root
def test_other_process_named_torchrun_is_not_the_launch() -> None:
    """Any user can start many processes with this name. The launch by the account of the cluster takes precedence."""
    words = ["torchrun", "-c", "read line", "--master_addr", "n1'; touch x; '", "train.py"]
    begun = [
        subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE, user=user, env={})
        for user in (NOBODY.pw_uid, NOBODY.pw_uid, 0)
    ]

    def ours() -> list[Agent]:
        found = json.loads(json.dumps(agents.agents({"key": KEY})))
        return [
            one for one in reading.read_all(Agent, found["agents"])[0] if one["pid"] in [each.pid for each in begun]
        ]

    try:
        until(lambda: sorted(one["user"] for one in ours()) == ["nobody", "nobody", "root"], PATIENCE, "all are there")
        seen = {"node1": ours()}
        assert hand_typed.choose(seen, [], {"root"}, "", has_last=True).user == "root"
        theirs = {"node1": [one for one in ours() if one["user"] == "nobody"]}
        chosen = hand_typed.choose(theirs, [], {"root"}, "", has_last=True)
        assert (chosen.user, chosen.remark[:37]) == ("", "Running: torchrun of nobody on node1:")
        [one] = hand_typed.one_launch(theirs, "nobody")
        assert one.head == ("", hand_typed.PORT)
    finally:
        for child in begun:
            child.kill()
            child.communicate()


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/opt/env/bin/torchrun --nnodes=2 train.py", True),
        ("/usr/bin/python3 /opt/env/bin/torchrun train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python3.11 -u -m torch.distributed.launch train.py", True),
        ("/usr/bin/python3 -u /opt/torch/distributed/run.py train.py", True),
        ("accelerate launch train.py", True),
        ("deepspeed train.py", True),
        ("python train.py torchrun", False),
        ("vim torchrun", False),
        ("grep torch.distributed.run", False),
    ],
)
def test_launcher_command_lines_are_recognized(line: str, is_one: bool) -> None:
    assert agents.is_launcher(line.split()) is is_one
