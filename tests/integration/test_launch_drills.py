"""What a launch does when something breaks.

Each drill proves that its fault is on, then that the verdict names it, then that nothing of the launch is left.
Until its fault a launch goes on for as long as it takes (Drill.gate). Times are bounded by the promise: noticed within
3 s (a silent node is spoken of after 5 s, and given up at 9 s), clean 10 s later; the bounds here leave room for two
busy cores, and more where others need them too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, all_pids, fields, hit, listening, processes, read_proc, stop_family
from launch_users import make_launch_user
from paths import ARTIFACTS, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play

pytestmark = pytest.mark.moment

NOTICED = 8.0  # 2 to 4 s on a machine that has nothing else to do
SILENCE = 9.0  # a node that does not answer is given up after this long
CLEAN = 13.0
PORT = 29500
LEASE = 11.0


@pytest.fixture(scope="module", autouse=True)
def provisioned(play: Play) -> None:
    """The nodes have the training user and the environment."""
    result = play("site.yml", tags="baseline,pytorch")
    assert result.rc == 0, result.stdout


USER = "ada"  # in whose own launch there is no root
OWN = pytest.param(USER, id="own")
# The drills pass both ways; those that say most of somebody's own launch do so in continuous integration.
both_ways = pytest.mark.parametrize("drill", [pytest.param("", id="administrators"), OWN], indirect=True)
both_ways_slowly = pytest.mark.parametrize(
    "drill",
    [pytest.param("", id="administrators"), pytest.param(USER, id="own", marks=pytest.mark.slow)],
    indirect=True,
)


@pytest.fixture(scope="module")
def launch_user(provisioned: None, node: Callable[[str], Machine]) -> str:
    make_launch_user(USER, [node("node1"), node("node2")])
    return USER


@pytest.fixture
def drill(request: pytest.FixtureRequest, tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    """An administrator's launch, or the own one of somebody."""
    user = getattr(request, "param", "")
    if user:
        request.getfixturevalue("launch_user")
    drill = Drill(tmp_path, user=user)
    yield drill
    for machine in nodes:
        if drill.run.is_dir() and drill.runs():  # a drill that failed must not spoil the next one
            drill.systemctl(machine, "stop", drill.unit(), check=False)
        machine.inside("rm", "--force", drill.gate)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str, Drill, dict[str, Any]], None]:
    """Collect the rows of the drill table; drill_table.py writes them into docs/launch.md."""
    path = ROOT / "artifacts/drills.json"

    def add(fault: str, drill: Drill, verdict: dict[str, Any]) -> None:
        path.parent.mkdir(exist_ok=True)
        rows = json.loads(path.read_text()) if path.exists() else {}
        rows[request.node.name] = {
            "fault": fault,
            "own": bool(drill.user),
            # Nobody is there to notice anything once ansible-playbook is gone.
            "noticed": round(drill.seconds_to_notice(), 1) if drill.thread else "-",
            "clean": round(drill.seconds_to_clean(), 1),
            "verdict": verdict["summary"].split(". Its log")[0],
        }
        path.write_text(json.dumps(rows, indent=1))

    return add


def only_failure(verdict: dict[str, Any]) -> dict[str, Any]:
    assert verdict["status"] == "failed", verdict
    failed = [one for one in verdict["findings"] if one["status"] == "fail" and one["id"] != "launch.cause"]
    assert len(failed) == 1, failed
    found: dict[str, Any] = failed[0]
    return found


def nothing_is_left(drill: Drill, *nodes: Machine) -> None:
    assert processes(drill.launch_id) == {}
    for node in nodes:
        assert PORT not in listening(node.container)
        units = drill.systemctl(node, "list-units", "--all", "--no-legend", "--plain", "muster-launch-*", check=False)
        assert drill.launch_id not in units
        assert node.inside("test", "-e", drill.state_on(node), check=False).returncode != 0


@pytest.fixture
def nodes(node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    return node("node1"), node("node2")


@both_ways_slowly
def test_a_sound_launch_ends_well_and_leaves_nothing(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.begin("--steps=10")
    verdict = drill.end()
    assert verdict["status"] == "healthy", verdict
    assert [finding["status"] for finding in verdict["findings"]] == ["pass", "pass"]
    for rank in range(4):
        log = drill.run / f"logs/node{1 + rank // 2}/rank{rank}.stdout.log"
        assert log.read_text() == "".join(f"step {step}\n" for step in range(10))
    nothing_is_left(drill, *nodes)


# ---------------------------------------------------------------- ranks


@both_ways
@pytest.mark.parametrize(
    "arguments", [(), pytest.param(("--record",), marks=pytest.mark.slow)], ids=["plain", "recorded"]
)
def test_exception_on_one_rank(drill: Drill, nodes: tuple[Machine, Machine], table: Any, arguments: tuple[str]) -> None:
    drill.begin("--fault=raise", "--rank=3", *arguments).in_step()
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: "sample 17" in log_on_the_node(drill, nodes[1], 1, "stderr"))
    drill.fault_at = written_at(drill, nodes[1], 1)
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.exception"
    assert finding["node"] == "node2"
    assert "rank 3" in finding["summary"]
    assert "sample 17 is broken" in finding["summary"]
    assert 'raise RuntimeError("sample 17 is broken")' in finding["evidence"][0]["text"]
    drill.was_quick(notice=NOTICED, clean=CLEAN)
    nothing_is_left(drill, *nodes)
    table("exception on rank 3" + (" under @record" if arguments else ""), drill, verdict)


def log_path(drill: Drill, local_rank: int, stream: str) -> str:
    return f"{drill.node_folder}/logs/torchrun/*/attempt_0/{local_rank}/{stream}.log"


def log_on_the_node(drill: Drill, node: Machine, local_rank: int, stream: str) -> str:
    return node.inside("sh", "-c", f"cat {log_path(drill, local_rank, stream)}", check=False).stdout


def written_at(drill: Drill, node: Machine, local_rank: int) -> float:
    path = log_path(drill, local_rank, "stderr")
    return float(node.inside("sh", "-c", f"stat --format=%.Y {path}").stdout)


@both_ways_slowly
@pytest.mark.slow
def test_the_same_error_on_every_rank(drill: Drill) -> None:
    drill.begin("--no-such-option")
    finding = only_failure(drill.end())
    assert "exited with code 2" in finding["summary"]
    assert "unrecognized arguments: --no-such-option" in finding["summary"]


@both_ways_slowly
def test_kill_9_of_a_rank(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    pid = drill.pid(2)
    drill.fault(lambda: hit(pid, signal.SIGKILL), lambda: pid not in processes(drill.launch_id))
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.signal"
    assert finding["node"] == "node2"
    assert "rank 2" in finding["summary"]
    assert "SIGKILL" in finding["summary"]
    drill.was_quick(notice=NOTICED, clean=CLEAN)
    nothing_is_left(drill, *nodes)
    table("kill -9 of rank 2", drill, verdict)


@both_ways_slowly
def test_a_stopped_rank_ends_a_launch_without_progress(
    drill: Drill, nodes: tuple[Machine, Machine], table: Any
) -> None:
    drill.variables["launch_stall_timeout"] = 4
    drill.begin().in_step()
    pid = drill.pid(1)
    drill.fault(lambda: hit(pid, signal.SIGSTOP), lambda: fields(pid)[0] == "T")
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.stalled"
    assert finding["node"] == "node1"
    assert "rank 1" in finding["summary"]
    assert "stopped by a signal (SIGSTOP)" in finding["summary"]
    assert len(finding["evidence"]) == 4  # the stack of every rank
    drill.was_quick(notice=4 + NOTICED, clean=4 + CLEAN)
    nothing_is_left(drill, *nodes)
    table("SIGSTOP of rank 1 (launch_stall_timeout 4 s)", drill, verdict)


@both_ways_slowly
def test_a_rank_that_waits_elsewhere_holds_up_the_others(
    drill: Drill, nodes: tuple[Machine, Machine], table: Any
) -> None:
    drill.variables["launch_stall_timeout"] = 4
    drill.begin("--fault=sleep", "--rank=2").in_step()
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: "waits\n" in log_on_the_node(drill, nodes[1], 0, "stdout"))
    drill.fault_at = time.time()
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.stalled"
    assert finding["node"] == "node2"
    assert "rank 2" in finding["summary"]
    assert "wait_for_a_file_that_never_comes" in finding["summary"]
    assert len(finding["evidence"]) == 4  # the stack of every rank
    nothing_is_left(drill, *nodes)
    table("rank 2 waits for a file (launch_stall_timeout 4 s)", drill, verdict)


# ---------------------------------------------------------------- agent, unit


@both_ways_slowly
def test_kill_9_of_the_agent(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    pid = drill.agent("node2")
    drill.fault(lambda: hit(pid, signal.SIGKILL), lambda: pid not in processes(drill.launch_id))
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.agent"
    assert finding["node"] == "node2"
    assert "torchrun itself was killed by SIGKILL" in finding["summary"]
    drill.was_quick(notice=NOTICED, clean=CLEAN)
    nothing_is_left(drill, *nodes)
    table("kill -9 of the torchrun agent", drill, verdict)


@both_ways
def test_kill_9_of_the_unit(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node1")
    drill.fault(
        lambda: drill.systemctl(nodes[0], "kill", "--signal=KILL", drill.unit()),
        lambda: agent not in processes(drill.launch_id),
    )
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unit"
    assert finding["node"] == "node1"
    assert "killed from outside (SIGKILL)" in finding["summary"]
    drill.was_quick(notice=NOTICED, clean=CLEAN)
    nothing_is_left(drill, *nodes)
    table("kill -9 of the unit", drill, verdict)


@both_ways_slowly
def test_the_unit_is_stopped_by_hand(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node2")
    drill.fault(
        lambda: drill.systemctl(nodes[1], "stop", "--no-block", drill.unit()),
        lambda: agent not in processes(drill.launch_id),
    )
    verdict = drill.end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unit"
    assert finding["node"] == "node2"
    assert "stopped from outside" in finding["summary"]
    drill.was_quick(notice=NOTICED, clean=CLEAN)
    nothing_is_left(drill, *nodes)
    table("systemctl stop of the unit", drill, verdict)


# ---------------------------------------------------------------- before the start


@pytest.fixture
def holder(nodes: tuple[Machine, Machine]) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's listener on the launch port of the head node."""
    code = f"import socket, sys; s = socket.create_server(('', {PORT})); sys.stdin.read()"
    argv = ["podman", "exec", "--interactive", nodes[0].container, "/usr/bin/python3", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        until(lambda: PORT in listening(nodes[0].container), PATIENCE, "the port is held")
        yield process


@both_ways_slowly
def test_port_taken(drill: Drill, nodes: tuple[Machine, Machine], holder: subprocess.Popen[bytes]) -> None:
    assert holder.poll() is None
    verdict = drill.begin().end()
    finding = only_failure(verdict)
    assert finding["id"] == "launch.port"
    assert finding["node"] == "node1"
    assert f"port {PORT} is held by PID" in finding["summary"]
    assert "socket.create_server" in finding["summary"]
    assert "cluster_master_port=29501" in verdict["summary"]
    assert processes(drill.launch_id) == {}
    assert PORT in listening(nodes[0].container)  # it is not ours to end


@both_ways_slowly
def test_a_node_stopped_before(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    nodes[1].podman("stop", "--time=1")
    try:
        verdict = drill.begin().end()
    finally:
        nodes[1].podman("start")
        wait_for_ssh(nodes[1])
    finding = only_failure(verdict)
    assert finding["id"] == "launch.unreachable"
    assert finding["node"] == "node2"
    assert verdict["summary"].startswith("not started.")
    assert "node1" not in [one["node"] for one in verdict["findings"] if one["status"] != "pass"]


def wait_for_ssh(machine: Machine) -> None:
    until(
        lambda: machine.ssh("systemctl is-system-running --wait", check=False).stdout.strip() == "running",
        PATIENCE,
        "it is back",
    )


@both_ways_slowly
def test_no_room_for_the_run_directory(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    with small_disk(nodes[1], "8m"):
        lead_there(drill, nodes)
        finding = only_failure(drill.begin().end())
    assert finding["id"] == "launch.disk"
    assert finding["node"] == "node2"
    assert "/srv/small" in finding["summary"]


def lead_there(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """Have the launch's folders below /srv/small."""
    drill.variables.update(
        cluster_run_root="/srv/small/launches",
        cluster_work_root="/srv/small/work",
        cluster_users_root="/srv/small/users",
    )
    for machine in nodes if drill.user else ():
        machine.inside("install", "-d", "-o", drill.user, f"/srv/small/users/{drill.user}")


@contextmanager
def small_disk(machine: Machine, size: str) -> Iterator[None]:
    """A small file system of its own at /srv/small of a node."""
    machine.inside("mkdir", "-p", "/srv/small")
    machine.inside("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/srv/small")
    try:
        yield
    finally:
        machine.inside("umount", "--lazy", "/srv/small")


# ---------------------------------------------------------------- disk, node, connection


@both_ways_slowly
def test_disk_full_in_the_run_directory(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    with small_disk(nodes[1], "72m"):
        lead_there(drill, nodes)
        drill.begin("--fault=fill", "--rank=3").in_step()
        drill.fault(
            lambda: drill.open_gate(nodes[1]),
            lambda: nodes[1].inside("df", "--output=avail", "/srv/small").stdout.split()[-1] == "0",
        )
        verdict = drill.end()
        finding = only_failure(verdict)
        assert finding["node"] == "node2"
        # Whichever of its two ranks wanted to write first: the disk is full for both.
        assert "rank 2 " in finding["summary"] or "rank 3 " in finding["summary"]
        assert "No space left on device" in finding["summary"] or "/srv/small" in finding["summary"]
        drill.was_quick(notice=NOTICED, clean=CLEAN)
        nothing_is_left(drill, *nodes)
        table("disk of the run directory full", drill, verdict)


@both_ways
def test_a_node_stopped_during(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    agent = drill.agent("node2")
    try:
        drill.fault(lambda: nodes[1].podman("stop", "--time=0"), lambda: agent not in processes(drill.launch_id))
        verdict = drill.end()
    finally:
        nodes[1].podman("start")
        wait_for_ssh(nodes[1])
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    drill.was_quick(clean=SILENCE + CLEAN)
    nothing_is_left(drill, *nodes)
    table("node2 switched off", drill, verdict)


@both_ways_slowly
@pytest.mark.slow
def test_a_frozen_node(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.frozen = "node2"
    drill.begin().in_step()
    on_node1 = [pid for pid, env in processes(drill.launch_id).items() if env.get("MUSTER_NODE") == "node1"]
    agent = drill.agent("node2")
    frozen = Path(f"/proc/{agent}/cgroup").read_text()
    assert frozen
    drill.fault(lambda: nodes[1].podman("pause"), lambda: nodes[1].ssh_answers() is False)
    try:
        verdict = drill.end()
        assert not set(on_node1) & set(processes(drill.launch_id))
    finally:
        nodes[1].podman("unpause")
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    assert "its lease ends it there" in json.dumps(verdict)
    # Thawed, the node finds its lease old and ends what it still has, with nobody telling it to.
    until(lambda: not drill.runs(), PATIENCE, "the thawed node ends its part")
    wait_for_ssh(nodes[1])
    drill.was_quick(clean=SILENCE + CLEAN)
    table("node2 frozen (podman pause); clean on node1", drill, verdict)


@both_ways_slowly
def test_sshd_stopped_during(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    drill.begin().in_step()
    # Her launch is no session of hers: it is in her manager, which stays.
    of_hers = "loginctl list-sessions --no-legend | while read -r session uid name rest; do"
    of_hers += f" test $name != {USER} || loginctl terminate-session $session; done"
    end_sessions = "systemctl kill --kill-whom=all ssh.service; systemctl stop ssh.service; "
    end_sessions += f"loginctl terminate-user admin; {of_hers}"
    try:
        drill.fault(lambda: nodes[1].inside("sh", "-c", end_sessions, check=False), lambda: not nodes[1].ssh_answers())
        verdict = drill.end()
        # Nobody can reach the node: its own lease has ended the launch there.
        until(lambda: not drill.runs(), PATIENCE, "the lease ends the launch")
        assert nodes[1].inside("systemctl", "--failed", "--no-legend", "--plain").stdout == ""
    finally:
        nodes[1].inside("systemctl", "start", "ssh.service")
    finding = next(one for one in verdict["findings"] if one["status"] == "fail")
    assert finding["id"] == "launch.node"
    assert finding["node"] == "node2"
    drill.was_quick(clean=SILENCE + CLEAN)
    table("sshd of node2 stopped, its connections ended", drill, verdict)


# ---------------------------------------------------------------- the controller


@both_ways
def test_ctrl_c(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    process = drill.begin_in_terminal()
    drill.in_step()
    drill.fault(lambda: os.write(drill.terminal, b"\x03"), lambda: b"^C" in drill.shown)
    drill.was_quick(clean=CLEAN)
    assert process.wait(20) != 0
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    verdict = drill.verdict()
    assert verdict["status"] == "unknown"
    assert "ended early" in verdict["summary"]
    nothing_is_left(drill, *nodes)
    table("Ctrl-C in the terminal", drill, verdict)


@both_ways_slowly
def test_kill_9_of_ansible_playbook(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    process = drill.begin_in_terminal()
    drill.in_step()
    drill.fault(process.kill, lambda: process.poll() == -signal.SIGKILL)
    drill.was_quick(clean=CLEAN)
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    assert "ansible-playbook was killed" in drill.verdict()["summary"]
    nothing_is_left(drill, *nodes)
    table("kill -9 of ansible-playbook", drill, drill.verdict())


@both_ways
def test_the_whole_controller_is_gone(drill: Drill, nodes: tuple[Machine, Machine], table: Any) -> None:
    """Every process of ansible-playbook is killed at once: only the leases are left to end the launch."""
    process = drill.begin_in_terminal()
    drill.in_step()

    def kill_all() -> None:
        for pid in stop_family(process.pid):
            hit(pid, signal.SIGKILL)

    drill.fault(kill_all, lambda: process.poll() is not None)
    assert len(processes(drill.launch_id)) >= 4  # it goes on at first
    assert drill.seconds_to_clean() > 2
    drill.was_quick(clean=LEASE + CLEAN)
    for machine in nodes:
        assert PORT not in listening(machine.container)
    table("the whole controller gone; the leases end it", drill, {"summary": "(none: nobody is left to write one)"})


# ---------------------------------------------------------------- several, uneven, limited


def test_two_launches_side_by_side(tmp_path: Path, nodes: tuple[Machine, Machine]) -> None:
    drills = []
    for name, members in (("one", ["node1"]), ("other", ["node2", "node3"])):
        folder = tmp_path / name
        folder.mkdir()
        one = Drill(folder, {"cluster_launch_nodes": members, "cluster_nproc_per_node": 1})
        drills.append(one.begin())
    drills[0].in_step(1)
    drills[1].in_step(2)
    assert processes(drills[0].launch_id)  # both at the same time
    assert processes(drills[1].launch_id)
    for one, machine in zip(drills, nodes, strict=True):
        one.open_gate(machine)
    # The one may end while the other still holds its port.
    assert [one.end()["status"] for one in drills] == ["healthy", "healthy"]
    for one, machine in zip(drills, nodes, strict=True):
        nothing_is_left(one, *nodes)
        machine.inside("rm", one.gate)


def test_uneven_ranks_and_a_limit(play: Play, tmp_path: Path) -> None:
    """Two ranks on node1, one on node3 and node2 each; --limit changes neither ranks nor participants."""
    result = play(
        "site.yml",
        tags="ddp_smoke",
        limit="node2",
        extravars={
            "cluster_nproc_per_node": "{{ 2 if inventory_hostname == 'node1' else 1 }}",
            "cluster_artifacts_dir": str(tmp_path),
            "ddp_smoke_stages": ["world", "collectives"],
        },
    )
    assert result.rc == 0, result.stdout
    run = (tmp_path / ARTIFACTS.name / "latest").resolve()
    plan = json.loads((run / "plan.json").read_text())
    assert [(entry["node"], entry["ranks"]) for entry in plan["nodes"]] == [
        ("node1", [0, 1]),
        ("node2", [2]),
        ("node3", [3]),
    ]
    smoke = json.loads((run / "smoke.json").read_text())
    assert [(one["hostname"], one["local_rank"]) for one in smoke["ranks"]] == [
        ("node1", 0),
        ("node1", 1),
        ("node2", 0),
        ("node3", 0),
    ]
    assert json.loads((run / "verdict.json").read_text())["status"] == "healthy"


# ---------------------------------------------------------------- detached, limited in time, with secrets


@both_ways_slowly
def test_a_detached_launch_goes_on_alone_and_is_seen_through_later(
    drill: Drill, nodes: tuple[Machine, Machine], play: Play
) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=600)
    verdict = drill.begin().end()
    assert verdict["status"] == "unknown"
    assert drill.runner.rc == 0
    launch_id = drill.launch_id
    # A step takes a tenth of a second or more: after these, a lease would be over.
    later = f"step {steps_on_the_node(drill, nodes[1]) + int(LEASE + 2) * 10}\n"
    until(lambda: later in log_on_the_node(drill, nodes[1], 1, "stdout"), PATIENCE, "it goes on")
    assert len(processes(launch_id)) >= 8, "wrapper, agent and ranks go on without a supervisor"
    kept = {**drill.whose, "cluster_artifacts_dir": str(drill.folder / "kept"), "launch_attach": launch_id}
    log = drill.run / "logs/node2/rank3.stdout.log"
    with ThreadPoolExecutor() as pool:
        attached = pool.submit(play, "playbooks/launch.yml", extravars=kept)
        try:
            until(lambda: log.exists() and later in log.read_text(), PATIENCE, "its logs come to the controller again")
        finally:
            drill.open_gate(nodes[1])
        result = attached.result()
    assert result.rc == 0, result.stdout
    assert drill.verdict()["status"] == "healthy"
    steps = log.read_text().splitlines()
    assert steps == [f"step {step}" for step in range(len(steps))]
    nothing_is_left(drill, *nodes)


def steps_on_the_node(drill: Drill, node: Machine) -> int:
    return log_on_the_node(drill, node, 1, "stdout").count("\n")


@both_ways_slowly
def test_a_detached_launch_is_ended_on_request(drill: Drill, nodes: tuple[Machine, Machine], play: Play) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=300)
    drill.begin().end()
    assert drill.runs()
    kept = {**drill.whose, "cluster_artifacts_dir": str(drill.folder / "kept"), "launch_stop": drill.launch_id}
    result = play("playbooks/launch.yml", extravars=kept)
    assert result.rc == 0, result.stdout
    nothing_is_left(drill, *nodes)


@both_ways_slowly
@pytest.mark.slow
def test_a_time_limit_ends_a_launch(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.variables["launch_time_limit"] = 25
    finding = only_failure(drill.begin().end())
    assert finding["id"] == "launch.limit"
    nothing_is_left(drill, *nodes)


@both_ways_slowly
def test_secrets_stay_secret(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    drill.variables["launch_env"] = {"HF_TOKEN": "hf-3141592653", "FLAVOUR": "vanilla-271828"}
    drill.begin().in_step()
    assert "HF_TOKEN=hf-3141592653" in read_proc(drill.pid(0), "environ").split("\0")
    assert not [pid for pid in all_pids() if "hf-3141592653" in read_proc(pid, "cmdline")]
    shown = drill.systemctl(nodes[0], "show", drill.unit()) + nodes[0].inside("journalctl", "--quiet").stdout
    assert "hf-3141592653" not in shown
    reading = f"cat {drill.state_on(nodes[0])}/spec.json"
    stranger = nodes[0].inside("su", "-s", "/bin/sh", "nobody", "-c", reading, check=False)
    assert "Permission denied" in stranger.stderr
    drill.open_gate(nodes[0])
    assert drill.end()["status"] == "healthy"
    played = drill.runner.stdout.read().encode()
    assert b"hf-3141592653" not in played
    plan = (drill.run / "plan.json").read_bytes()
    assert b"hf-3141592653" not in plan
    assert b"vanilla-271828" not in plan
