"""Concurrent launches: GPU slots or CPU slots belong to one launch at a time, on all nodes or on none.

The ranks need no PyTorch. GPUs are simulated by a device file and an nvidia-smi stub. All launches are detached: once
their ranks run, only their gate ends them, however busy this machine is.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, failures, fields, hit, processes
from paths import ROOT
from standin_smi import COMPUTING, two_gpus
from standin_torchrun import TORCHRUN, provide
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

SLOTS = "/run/muster/reservations"


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    provide(play, *machines)
    return machines


@pytest.fixture
def launches(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Callable[..., Drill]]:
    """Return a function that starts a launch whose ranks wait for its gate. Launches end with the test."""
    made: list[Drill] = []

    def begin(*, in_terminal: bool = False, **variables: Any) -> Drill:
        folder = tmp_path / f"launch{len(made)}"
        folder.mkdir()
        given = {
            "cluster_torchrun": TORCHRUN,
            "launch_script_src": str(ROOT / "tests/integration/payloads/wait_for_gate.py"),
            "launch_detached": True,
            "launch_time_limit": 3600,
            **variables,
        }
        drill = Drill(folder, given)
        made.append(drill)
        if in_terminal:
            drill.begin_in_terminal()
        else:
            drill.begin()
        return drill

    yield begin
    for drill in made:
        drill.clean_up(nodes)


def ranks(drill: Drill) -> list[int]:
    return [pid for pid, env in processes(drill.launch_id).items() if "RANK" in env]


def running(*drills: Drill, count: int = 4) -> Drill:
    """Wait until the ranks of one of the launches run without a controller. Return that launch."""
    found: Drill = until(lambda: [one for one in drills if len(ranks(one)) == count], PATIENCE, "ranks run")[0]
    said = [finding["id"] for finding in found.end()["findings"]]
    assert "launch.detached" in said, f"{said}: the launch was lost, as when its nodes do not respond for seconds"
    return found


def finish(drill: Drill, nodes: tuple[Machine, Machine]) -> dict[str, Any]:
    """Let the ranks finish, and wait for their end. Return the verdict of the playbook run that started them."""
    for machine in nodes:
        drill.open_gate(machine)
    verdict = drill.end()
    until(lambda: not drill.runs(), PATIENCE, "the ranks have ended")
    return verdict


def refusals(drill: Drill) -> dict[str, str]:
    """Check that the launch left nothing behind. Return the reasons for its refusal, by node."""
    verdict = drill.end()
    assert verdict["status"] == "failed", verdict
    failed = failures(verdict)
    assert {finding["id"] for finding in failed} == {"launch.taken"}, failed
    assert processes(drill.launch_id) == {}
    assert list(drill.run.glob("logs/*/rank*")) == []
    return {finding["node"]: finding["summary"] for finding in failed}


def output_of(drill: Drill) -> str:
    text: str = drill.runner.stdout.read()
    return text


def start_two_at_once(launches: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    pair = [launches() for _ in range(2)]
    winner = running(*pair)
    (beaten,) = (one for one in pair if one is not winner)
    assert all(f"launch {winner.launch_id} of muster" in summary for summary in refusals(beaten).values())
    finish(winner, nodes)


@pytest.mark.pipeline
def test_refused_launch_reports_the_holder_of_the_slot(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    nodes[1].inside("sh", "-ec", f"mkdir -p {SLOTS}; touch {SLOTS}/cpu")
    code = f"import fcntl, sys; f = open('{SLOTS}/cpu'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
    argv = ["podman", "exec", "--interactive", nodes[1].container, "python3", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline()
        said = refusals(launches())
        holder.communicate()
    assert said.keys() == {"node2"}
    assert "of root (python3 -c import fcntl" in said["node2"]
    assert said["node2"].endswith("holds the CPU slot")


@pytest.mark.slow
def test_one_of_two_simultaneous_launches_starts(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    for _ in range(20):
        start_two_at_once(launches, nodes)


@pytest.mark.slow
def test_later_launch_is_refused_and_the_holder_is_reported(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    said = refusals(launches(cluster_launch_nodes=["node2"], cluster_master_port=29601))
    assert said.keys() == {"node2"}
    assert f"launch {first.launch_id} of muster" in said["node2"]
    assert said["node2"].endswith("holds the CPU slot")
    assert refusals(launches())["node1"].endswith("holds the CPU slot and port 29500")
    finish(first, nodes)


@pytest.mark.slow
def test_waiting_launch_starts_when_the_other_ends(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    waiting = [launches(launch_wait=True) for _ in range(2)]
    until(
        lambda: all(first.launch_id in output_of(one) for one in waiting),
        PATIENCE,
        "both report the holder",
    )
    assert [processes(one.launch_id) for one in waiting] == [{}, {}]
    finish(first, nodes)
    second = running(*waiting)
    (third,) = (one for one in waiting if one is not second)
    until(lambda: second.launch_id in output_of(third), PATIENCE, "the other launch still waits")
    assert ranks(third) == []
    finish(second, nodes)
    finish(running(third), nodes)


@pytest.mark.slow
def test_wait_for_slots_ends_after_its_timeout(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    assert f"launch {first.launch_id}" in refusals(launches(launch_wait=True, launch_wait_timeout=5))["node2"]
    finish(first, nodes)


@pytest.mark.slow
def test_ctrl_c_ends_the_wait(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    waiting = launches(in_terminal=True, launch_wait=True)
    until(lambda: first.launch_id.encode() in waiting.shown, PATIENCE, "the launch reports what it waits for")
    os.write(waiting.terminal, b"\x03")
    waiting.process.wait(PATIENCE)
    assert "interrupted" in waiting.verdict()["summary"]
    assert len(ranks(first)) == 4
    finish(first, nodes)


@pytest.mark.slow
def test_shared_launch_starts_beside_another(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    beside = running(launches(launch_shared=True, cluster_master_port=29601))
    finish(first, nodes)
    assert f"launch {beside.launch_id}" in refusals(launches())["node1"]
    said = [one["summary"] for one in finish(beside, nodes)["findings"] if one["id"] == "launch.taken"]
    assert all(f"shares the CPU slot with launch {first.launch_id}" in one for one in said)
    assert len(said) == 2


@pytest.mark.slow
def test_killed_unit_frees_its_slots(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    # The unit's main process is the parent of the agent.
    hit(int(fields(first.agent("node1"))[1]), signal.SIGKILL)
    until(lambda: len(ranks(first)) == 2, PATIENCE, "no rank runs on node1")
    finish(running(launches(cluster_launch_nodes=["node1"]), count=2), nodes)
    assert refusals(launches()).keys() == {"node2"}
    finish(first, nodes)


@pytest.mark.slow
def test_slot_locked_by_the_training_user_is_reported(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = running(launches())
    door = f"/run/muster/launches/{first.launch_id}/seats/cpu"
    stranger = nodes[0].inside("setpriv", "--reuid=nobody", "--clear-groups", "cat", door, check=False)
    assert "Permission denied" in stranger.stderr
    code = f"import fcntl, sys; f = open('{door}'); print('open', flush=True); fcntl.flock(f, 2); sys.stdin.read()"
    argv = ["podman", "exec", "--interactive", "--user=muster", nodes[0].container, "python3", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout
        assert hostile.stdout.readline()
        finish(first, nodes)
        said = refusals(launches())
        assert said.keys() == {"node1"}
        assert "of muster (python3 -c import fcntl" in said["node1"]
        hostile.communicate()
    finish(running(launches()), nodes)


@pytest.mark.slow
def test_gpu_used_outside_of_launches_is_not_assigned(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    gpus = {"cluster_gpus": 2, "cluster_nproc_per_node": 1}
    with two_gpus(nodes):
        nodes[1].inside("sh", "-c", f"sleep 9999 >/dev/null 2>&1 & echo GPU-aa, $! >{COMPUTING}")
        said = refusals(launches(**gpus))
        assert said.keys() == {"node2"}
        assert "of root (sleep 9999" in said["node2"]
        assert said["node2"].endswith("holds GPU 0")
        # The second GPU is free.
        first = running(launches(**gpus, launch_env={"CUDA_VISIBLE_DEVICES": "1"}), count=2)
        nodes[1].inside("sh", "-c", f"kill $(sed 's/.*, //' {COMPUTING}); : >{COMPUTING}")
        by_name = {"CUDA_VISIBLE_DEVICES": "GPU-aa"}
        second = running(launches(**gpus, launch_env=by_name, cluster_master_port=29601), count=2)
        held = refusals(launches(**gpus, cluster_master_port=29602))
        assert held.keys() == {"node1", "node2"}
        assert all(f"launch {second.launch_id}" in summary for summary in held.values())
        finish(first, nodes)
        finish(second, nodes)
