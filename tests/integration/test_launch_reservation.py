"""Launches beside each other: the GPUs, or the processors, are one's at a time, on all nodes or on none.

The ranks need no PyTorch here, and the GPUs are a device file and a stand-in of nvidia-smi.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from drill import PATIENCE, Drill, fields, hit, processes, until
from paths import ROOT
from standin_torchrun import TORCHRUN, provide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

NVIDIA_SMI = """#!/bin/sh
# Stand-in of nvidia-smi, of Muster's tests: two GPUs, and whatever a file says of who computes on them.
case $1 in
--query-gpu=*) printf '0, GPU-aa\\n1, GPU-bb\\n' ;;
*) cat /run/muster-test-computing ;;
esac
"""


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    provide(play, *machines)
    return machines


@pytest.fixture
def launches(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Callable[..., Drill]]:
    """Makes a launch that waits for its gate; whatever is left of it is ended with the test."""
    made: list[Drill] = []

    def make(**variables: Any) -> Drill:
        script = str(ROOT / "tests/integration/payloads/wait_for_gate.py")
        folder = tmp_path / f"launch{len(made)}"
        folder.mkdir()
        drill = Drill(folder, {"cluster_torchrun": TORCHRUN, "launch_script_src": script})
        drill.variables.update(variables)
        made.append(drill)
        return drill

    yield make
    for drill in made:
        for machine in nodes:
            if drill.run.is_dir() and drill.runs():
                machine.inside("systemctl", "stop", drill.unit(), check=False)
            machine.inside("rm", "--force", drill.gate)


def finish(drill: Drill, nodes: tuple[Machine, Machine]) -> dict[str, Any]:
    """Let it come to its end."""
    for machine in nodes:
        drill.open_gate(machine)
    verdict = drill.end()
    assert verdict["status"] in ("healthy", "degraded"), verdict
    assert processes(drill.launch_id) == {}
    return verdict


def refusals(drill: Drill) -> dict[str, str]:
    """By node, why it did not begin."""
    verdict = drill.end()
    assert verdict["status"] == "failed", verdict
    failed = [finding for finding in verdict["findings"] if finding["status"] == "fail"]
    assert {finding["id"] for finding in failed} == {"launch.taken"}, failed
    assert processes(drill.launch_id) == {}
    return {finding["node"]: finding["summary"] for finding in failed}


def in_the_same_instant(launches: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    pair = [launches(launch_rendezvous_timeout=300).begin() for _ in range(2)]
    until(lambda: sum(one.goes_on() for one in pair) == 1, PATIENCE, "one of them is refused")
    beaten, winner = sorted(pair, key=Drill.goes_on)
    winner.in_step()
    for summary in refusals(beaten).values():
        assert f"launch {winner.launch_id} of muster" in summary
    finish(winner, nodes)


def test_of_two_in_the_same_instant_one_begins(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    in_the_same_instant(launches, nodes)


@pytest.mark.slow
def test_of_two_in_the_same_instant_one_begins_twenty_times(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    for _ in range(20):
        in_the_same_instant(launches, nodes)


@pytest.mark.slow
def test_who_comes_later_is_refused_by_name(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    said = refusals(launches(cluster_launch_nodes=["node2"], cluster_master_port=29601).begin())
    assert said.keys() == {"node2"}
    assert f"launch {first.launch_id} of muster" in said["node2"]
    assert "its processors" in said["node2"]
    held = refusals(launches().begin())
    assert "its processors and port 29500" in held["node1"]
    finish(first, nodes)


@pytest.mark.slow
def test_who_waits_begins_when_the_other_has_ended(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    waiting = [launches(launch_wait=True).begin() for _ in range(2)]
    until(lambda: all(first.launch_id in said_by(one) for one in waiting), PATIENCE, "they say for whom they wait")
    assert [processes(one.launch_id) for one in waiting] == [{}, {}]
    finish(first, nodes)
    until(lambda: any(one.runs() and len(ranks(one)) == 4 for one in waiting), PATIENCE, "one begins")
    second, third = sorted(waiting, key=lambda one: len(ranks(one)), reverse=True)
    until(lambda: f"launch {second.launch_id}" in said_by(third), PATIENCE, "the other goes on waiting")
    assert ranks(third) == []
    finish(second, nodes)
    finish(third.in_step(), nodes)


@pytest.mark.slow
def test_waiting_ends_with_its_time(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    assert f"launch {first.launch_id}" in refusals(launches(launch_wait=True, launch_wait_timeout=5).begin())["node2"]
    finish(first, nodes)


@pytest.mark.slow
def test_who_shares_is_let_in_and_says_so(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    beside = launches(launch_shared=True, cluster_master_port=29601).begin().in_step()
    finish(first, nodes)
    assert f"launch {beside.launch_id}" in refusals(launches().begin())["node1"]
    verdict = finish(beside, nodes)
    assert f"shares its processors with launch {first.launch_id}" in verdict["summary"]


@pytest.mark.slow
def test_a_killed_unit_frees_what_it_had(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    hit(main_process(first, "node1"), signal.SIGKILL)
    assert first.end()["status"] == "failed"
    finish(launches().begin().in_step(), nodes)


@pytest.mark.slow
def test_a_lock_of_the_training_users_own_process_is_named(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    first = launches().begin().in_step()
    door = f"/run/muster/launches/{first.launch_id}/seats/cpu"
    assert nodes[0].inside("setpriv", "--reuid=nobody", "--clear-groups", "cat", door, check=False).returncode != 0
    code = f"import fcntl, sys; f = open('{door}'); fcntl.flock(f, fcntl.LOCK_EX); sys.stdin.read()"
    nodes[0].inside("runuser", "-u", "muster", "--", "sh", "-c", f'sleep 9999 | python3 -c "{code}" >/dev/null 2>&1 &')
    finish(first, nodes)
    try:
        until(lambda: "WRITE" in nodes[0].inside("cat", "/proc/locks").stdout, PATIENCE, "it has the lock")
        said = refusals(launches().begin())
        assert said.keys() == {"node1"}
        assert "of muster (python3 -c import fcntl" in said["node1"]
    finally:
        nodes[0].inside("sh", "-c", "kill $(awk '$2 == \"FLOCK\" {print $5}' /proc/locks)", check=False)
    finish(launches().begin().in_step(), nodes)


@pytest.mark.slow
def test_whoever_computes_outside_of_launches_is_respected(launches: Any, nodes: tuple[Machine, Machine]) -> None:
    gpus = {"cluster_gpus": 2, "cluster_nproc_per_node": 1}
    for machine in nodes:
        machine.inside("sh", "-ec", "touch /dev/nvidia0 /dev/nvidia1 /run/muster-test-computing")
        script = f"cat >/usr/local/bin/nvidia-smi <<'END'\n{NVIDIA_SMI}END\nchmod 755 /usr/local/bin/nvidia-smi"
        machine.inside("sh", "-ec", script)
    try:
        nodes[1].inside("sh", "-c", "sleep 9999 >/dev/null 2>&1 & echo GPU-aa, $! >/run/muster-test-computing")
        said = refusals(launches(**gpus).begin())
        assert said.keys() == {"node2"}
        assert "of root (sleep 9999" in said["node2"]
        assert said["node2"].endswith("has GPU 0")
        # The other GPU is free.
        first = launches(**gpus, launch_env={"CUDA_VISIBLE_DEVICES": "1"}).begin().in_step(2)
        nodes[1].inside("sh", "-c", "kill $(sed 's/.*, //' /run/muster-test-computing); : >/run/muster-test-computing")
        second = launches(**gpus, launch_env={"CUDA_VISIBLE_DEVICES": "GPU-aa"}, cluster_master_port=29601)
        second.begin().in_step(2)
        held = refusals(launches(**gpus, launch_env={"CUDA_VISIBLE_DEVICES": "0,1"}, cluster_master_port=29602).begin())
        assert all(f"launch {second.launch_id}" in summary for summary in held.values())
        finish(first, nodes)
        finish(second, nodes)
    finally:
        for machine in nodes:
            machine.inside(
                "rm", "/dev/nvidia0", "/dev/nvidia1", "/run/muster-test-computing", "/usr/local/bin/nvidia-smi"
            )


def said_by(drill: Drill) -> str:
    text: str = drill.runner.stdout.read()
    return text


def ranks(drill: Drill) -> list[int]:
    return [pid for pid, env in processes(drill.launch_id).items() if "RANK" in env]


def main_process(drill: Drill, node: str) -> int:
    """The unit's own: the parent of the agent."""
    return int(fields(drill.agent(node))[1])
