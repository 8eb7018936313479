"""Launches that restart after a failure, and detached launches that end on all nodes without a controller.

docs/launch_detached.md states the limit for a detached launch: it ends on all nodes within a minute.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, hit, processes
from net_faults import rules
from paths import ARTIFACTS, ROOT
from test_examples import events
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.moment

STATED = 60.0  # seconds until a detached launch has ended everywhere
SILENCE = 20.0
SEED = random.SystemRandom().randrange(2**32)
TRAIN = {
    "launch_script_src": str(ROOT / "examples/cifar10/train.py"),
    "launch_env": {"OMP_NUM_THREADS": "1"},
    "cluster_nproc_per_node": 1,
}
# Forty epochs of ten steps: long enough that a fault at a chosen step comes before the end.
ARGUMENTS = [
    *("--width=8", "--num-workers=0", "--log-every=1", "--samples=960", "--epochs=40", "--global-batch=96"),
    *("--micro-batch=16", "--checkpoint-every=5", "--output=output", "--resume"),
]


@pytest.fixture(scope="module", autouse=True)
def provisioned(with_pytorch: None) -> None:
    """Provide the training user and the environment."""


@pytest.fixture
def nodes(node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    return node("node1"), node("node2")


@pytest.fixture
def detached(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    """Yield a detached launch, which runs without its controller."""
    drill = Drill(tmp_path, {"launch_detached": True, "launch_time_limit": 900})
    assert drill.begin().end()["status"] == "unknown"
    assert drill.runs()
    yield drill
    for machine in nodes:
        with suppress(subprocess.CalledProcessError):  # not paused
            machine.podman("unpause")
        machine.inside("systemctl", "stop", drill.unit(), check=False)
        machine.inside("rm", "--force", drill.gate)


def of(drill: Drill, node: str) -> set[int]:
    """Return the pids of the launch on a node, seen from outside."""
    return {pid for pid, env in processes(drill.launch_id).items() if env.get("MUSTER_NODE") == node}


def ended_on(drill: Drill, node: str, seconds: float) -> float:
    """Wait until no process of the launch runs on the node. Return the elapsed seconds."""
    begun = time.monotonic()
    until(lambda: not of(drill, node), seconds, f"the launch has ended on {node}")
    return time.monotonic() - begun


def result_on(machine: Machine, drill: Drill) -> dict[str, Any]:
    """Return the result that the main process of the launch wrote on the node."""
    path = f"/run/muster/launches/{drill.launch_id}/unit/result.json"
    found: dict[str, Any] = json.loads(machine.inside("cat", path).stdout)
    return found


def attached(drill: Drill, play: Play) -> dict[str, Any]:
    kept = {"cluster_artifacts_dir": str(drill.folder / "kept"), "launch_attach": drill.launch_id}
    play("playbooks/launch.yml", extravars=kept)
    return drill.verdict()


# ---------------------------------------------------------------- detached, without a controller


@pytest.mark.slow
def test_frozen_node_ends_a_detached_launch(detached: Drill, nodes: tuple[Machine, Machine], play: Play) -> None:
    assert of(detached, "node1")
    nodes[1].podman("pause")
    seconds = ended_on(detached, "node1", STATED)
    assert seconds > SILENCE - 5
    assert "no heartbeat from node2 for 20 s" in result_on(nodes[0], detached)["error"]
    nodes[1].podman("unpause")
    ended_on(detached, "node2", STATED)
    verdict = attached(detached, play)
    assert verdict["status"] == "failed"
    assert "node2" in verdict["summary"]
    assert verdict["findings"][0]["id"] == "launch.peer"


def test_frozen_head_node_ends_a_detached_launch(detached: Drill, nodes: tuple[Machine, Machine]) -> None:
    assert of(detached, "node2")
    nodes[0].podman("pause")
    seconds = ended_on(detached, "node2", STATED)
    assert seconds > SILENCE - 5
    assert "no heartbeat from the head node node1 for 20 s" in result_on(nodes[1], detached)["error"]


@pytest.mark.pipeline
def test_stopped_unit_ends_a_detached_launch_and_is_reported(
    detached: Drill, nodes: tuple[Machine, Machine], play: Play
) -> None:
    nodes[1].inside("systemctl", "stop", detached.unit())
    ended_on(detached, "node1", STATED / 2)
    assert result_on(nodes[0], detached)["reason"] in ("peer", "exit")
    verdict = attached(detached, play)
    assert verdict["status"] == "failed"
    assert "node2: the launch's unit was stopped from outside" in verdict["summary"]


@pytest.mark.slow
def test_launch_survives_a_short_network_outage(detached: Drill, nodes: tuple[Machine, Machine], play: Play) -> None:
    ranks = set(processes(detached.launch_id))
    with rules(nodes[0], f"ip saddr {nodes[1].address} counter drop"):
        time.sleep(SILENCE / 2)
    time.sleep(SILENCE * 1.5)  # enough time for anything to end
    assert set(processes(detached.launch_id)) >= ranks
    for machine in nodes:
        detached.open_gate(machine)
    assert attached(detached, play)["status"] == "healthy"


def test_restarts_of_a_detached_administrator_launch_are_refused(tmp_path: Path, play: Play) -> None:
    asked = {**TRAIN, "cluster_artifacts_dir": str(tmp_path), "launch_detached": True, "launch_time_limit": 60}
    for launch_as in ("auto", "cluster_user"):
        result = play("playbooks/launch.yml", extravars={**asked, "launch_restarts": 1, "launch_as": launch_as})
        assert result.rc != 0
        latest_events = " ".join(result.stdout.split())
        assert "launch_restarts of a detached launch requires a watcher on the head node" in latest_events
        assert "administrator launches have no such logins" in latest_events


# ---------------------------------------------------------------- restarts


@contextmanager
def switched_off(machine: Machine) -> Iterator[None]:
    machine.podman("stop", "--time=0")
    try:
        yield
    finally:
        machine.podman("start")
        until(lambda: machine.ssh("true", check=False).returncode == 0, PATIENCE, "the node is back")


def runs(drill: Drill) -> list[Path]:
    """Return the folders of the attempts in order."""
    return sorted(path.parent for path in (drill.folder / "kept" / ARTIFACTS.name).glob("2*/plan.json"))


def latest_events(run: Path) -> dict[str, Any]:
    log = run / "logs/node1/rank0.stdout.log"
    return events(log.read_text().rpartition("\n")[0]) if log.exists() else {}


def reach(drill: Drill, step: int) -> None:
    def there() -> bool:
        assert drill.is_running(), "the play ended too early"
        return bool(runs(drill)) and latest_events(runs(drill)[0]).get("step", {}).get("step", 0) >= step

    until(there, PATIENCE, f"step {step}")


def hold(drill: Drill, rank: str) -> None:
    """Stop a rank, because a fast machine could finish all steps before a node is switched off."""
    for pid, env in processes(drill.launch_id).items():
        if env.get("RANK") == rank:
            hit(pid, signal.SIGSTOP)


def weights(machine: Machine, plan: dict[str, Any]) -> list[float]:
    path = f"{plan['nodes'][0]['work_dir']}/output/weights.pt"
    text = (
        f"import json, torch; w = torch.load({path!r}, weights_only=True);"
        " print(json.dumps([float(x) for v in w.values() for x in v.flatten()]))"
    )
    shown = machine.inside("/opt/muster/pytorch/current/bin/python", "-c", text).stdout
    found: list[float] = json.loads(shown.splitlines()[-1])
    return found


def trained(folder: Path, members: list[str], **more: Any) -> Drill:
    folder.mkdir()
    return Drill(folder, {**TRAIN, "launch_args": ARGUMENTS, "cluster_launch_nodes": members, **more})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, node: Callable[[str], Machine]) -> dict[str, Any]:
    """Return the events and parameters of an undisturbed run."""
    drill = trained(tmp_path_factory.mktemp("whole") / "run", ["node1", "node2"])
    assert drill.begin().end()["status"] == "healthy"
    plan = json.loads((drill.run / "plan.json").read_text())
    return {**latest_events(drill.run), "weights": weights(node("node1"), plan)}


@pytest.mark.slow
def test_spare_replaces_a_failed_node(whole: dict[str, Any], tmp_path: Path, node: Callable[[str], Machine]) -> None:
    step = random.Random(SEED).randint(8, 60)
    print(f"seed {SEED}: node2 is switched off at step {step} or a little later")
    asked = {"launch_restarts": 2, "launch_spares": ["node3"], "launch_checkpoints": "output/checkpoint.pt"}
    drill = trained(tmp_path / "spare", ["node1", "node2"], **asked).begin()
    reach(drill, step)
    with switched_off(node("node2")):
        drill.wait(PATIENCE)
    assert len(runs(drill)) == 2, drill.runner.stdout.read()
    first, second = runs(drill)
    plan = json.loads((second / "plan.json").read_text())
    assert [entry["node"] for entry in plan["nodes"]] == ["node1", "node3"]
    assert (plan["attempt"], plan["master_port"]) == (2, 29501)
    environment = plan["nodes"][0]["env"]
    assert environment["MUSTER_ATTEMPT"] == "2"
    assert environment["MUSTER_CHECKPOINT"] == f"{plan['nodes'][0]['work_dir']}/output/checkpoint.pt"
    verdict = json.loads((first / "verdict.json").read_text())
    assert verdict["status"] == "degraded", verdict["summary"]
    (finding,) = [one for one in verdict["findings"] if one["id"] == "launch.restarted"]
    assert finding["node"] == "node2"
    assert "node3 replaces node2" in finding["summary"]
    assert latest_events(second)["resumed"]["step"] % 5 == 0
    # Equal bit by bit, because the world size is unchanged and the ranks use CPUs.
    assert latest_events(second)["summary"]["parameters_sha256"] == whole["summary"]["parameters_sha256"]


@pytest.mark.slow
def test_remaining_nodes_continue_without_a_failed_node(
    whole: dict[str, Any], tmp_path: Path, node: Callable[[str], Machine]
) -> None:
    step = random.Random(SEED + 1).randint(8, 60)
    print(f"seed {SEED + 1}: node3 is switched off at step {step} or a little later")
    drill = trained(tmp_path / "rest", ["node1", "node2", "node3"], launch_restarts=2, launch_min_nodes=2).begin()
    reach(drill, step)
    hold(drill, rank="2")
    with switched_off(node("node3")):
        drill.wait(PATIENCE)
    assert len(runs(drill)) == 2, drill.runner.stdout.read()
    second = runs(drill)[1]
    plan = json.loads((second / "plan.json").read_text())
    assert [entry["node"] for entry in plan["nodes"]] == ["node1", "node2"]
    assert json.loads((runs(drill)[0] / "verdict.json").read_text())["status"] == "degraded"
    assert latest_events(second)["resumed"]["step"] % 5 == 0
    found, expected = weights(node("node1"), plan), whole["weights"]
    worst = max(abs(one - other) for one, other in zip(found, expected, strict=True))
    size = max(map(abs, expected))
    print(f"largest difference of a parameter: {worst:.2e}, of values up to {size:.2f}")
    assert worst <= 1e-2 * size


def test_repeated_failure_ends_the_restarts(tmp_path: Path, nodes: tuple[Machine, Machine]) -> None:
    drill = Drill(tmp_path, {"launch_restarts": 5})
    nodes[1].inside("touch", drill.gate)
    try:
        drill.begin("--fault=raise").wait()
    finally:
        nodes[1].inside("rm", "--force", drill.gate)
    assert len(runs(drill)) == 2
    verdict = json.loads((runs(drill)[0] / "verdict.json").read_text())
    assert verdict["status"] == "failed"
    assert (
        "given up after 2 attempts: the same exception occurred twice at the same place: RuntimeError"
        in verdict["summary"]
    )
    known = {"launch.restarted", "launch.exception", "launch.cause", "launch.given_up"}
    assert {one["id"] for one in verdict["findings"]} == known
    for run in runs(drill):
        assert processes(run.name) == {}
