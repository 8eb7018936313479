"""The examples, run as a user runs them: by Python and torchrun on one node, and through Muster on two nodes.

The training is killed at a random step, resumed, stopped by SIGTERM and resumed again. Its final parameters must equal
those of an undisturbed run bit by bit.
"""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import cifar_archive
from drill import Drill, hit, processes
from paths import ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

BIN = "/opt/muster/pytorch/current/bin"
PLACE = "/srv/muster-examples"  # on the nodes, owned by the training user
EXAMPLES = f"{PLACE}/examples"
TRAIN = f"{EXAMPLES}/cifar10/train.py"
STEPS = 100
# torch 2.13 with Python 3.11: one of seven short runs aborts if the process group is destroyed at exit or by the
# garbage collector.
ABORTED, TRIES = "terminate called without an active exception", 6
SMALL = ["--width=8", "--num-workers=0", "--log-every=1"]
# Ten epochs of ten steps, with checkpoints also in the middle of an epoch.
LONG = [*SMALL, "--samples=960", "--epochs=10", "--global-batch=96", "--micro-batch=16", "--checkpoint-every=7"]


@pytest.fixture(scope="module", autouse=True)
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> Iterator[tuple[Machine, Machine]]:
    """Yield two nodes with the training user, the environment, and a copy of the examples."""
    machines = node("node1"), node("node2")
    for machine in machines:
        machine.inside("rm", "--recursive", "--force", PLACE)
        machine.inside("install", "--directory", PLACE)
        for source in (ROOT / "examples", ROOT / "tests/integration/payloads"):
            subprocess.run(["podman", "cp", str(source), f"{machine.container}:{PLACE}"], check=True)
        machine.inside("chown", "--recursive", "muster:", PLACE)
    yield machines
    for machine in machines:
        machine.inside("rm", "--recursive", "--force", PLACE)


def as_user(machine: Machine, *command: str) -> str:
    """Return the output of a command that the training user runs in PLACE."""
    text = f"cd {PLACE} && PATH={BIN}:$PATH OMP_NUM_THREADS=1 {shlex.join(command)}"
    return machine.inside("runuser", "-u", "muster", "--", "bash", "-c", text).stdout


def run_ignoring_exit_aborts(machine: Machine, *command: str) -> str:
    """Like as_user, but retry if a Gloo thread aborts at exit because the script omits destroy_process_group."""
    for _ in range(TRIES):
        try:
            return as_user(machine, *command)
        except RuntimeError as problem:
            if ABORTED not in str(problem):
                raise
    raise AssertionError(f"it aborted at its end {TRIES} times")


def events(text: str) -> dict[str, Any]:
    """Return the last event of each kind."""
    lines = [line.removeprefix("@muster ") for line in text.splitlines() if "{" in line]
    return {event["event"]: event for event in map(json.loads, lines)}


# ---------------------------------------------------------------- through Muster, on two nodes


def launched(folder: Path, *arguments: str) -> Drill:
    """Start a launch that never gives up a node, however busy this machine is."""
    folder.mkdir()
    requested = {
        "launch_script_src": str(ROOT / "examples/cifar10/train.py"),
        "launch_args": [*LONG, *arguments],
        "launch_chdir": PLACE,
        "launch_env": {"OMP_NUM_THREADS": "1"},
        "launch_detached": True,
        "launch_time_limit": 1800,
    }
    begun = Drill(folder, requested).begin()
    begun.wait()
    return Drill(folder, {**requested, "launch_attach": begun.launch_id}).begin()


def latest_events(drill: Drill) -> dict[str, Any]:
    log = drill.run / "logs/node1/rank0.stdout.log"
    return events(log.read_text().rpartition("\n")[0]) if log.exists() else {}


def reach(drill: Drill, step: int) -> None:
    until(lambda: latest_events(drill).get("step", {}).get("step", 0) >= step, PATIENCE, f"step {step}")
    assert "summary" not in latest_events(drill), "the run ended too soon"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the events of an undisturbed run."""
    drill = launched(tmp_path_factory.mktemp("whole") / "run", "--output=whole")
    assert drill.end()["status"] == "healthy"
    return latest_events(drill)


def test_example_training_reaches_80_percent_accuracy(whole: dict[str, Any]) -> None:
    assert whole["start"]["processes"] == 4
    assert whole["start"]["accumulation"] == 2
    assert "SYNTHETIC" in whole["data"]["source"]
    assert whole["step"]["step"] == STEPS
    assert whole["summary"]["accuracy"] > 0.8
    assert whole["summary"]["samples_per_second"] > 0


@pytest.mark.moment
@pytest.mark.slow
def test_resumed_run_ends_with_the_same_parameters_as_an_undisturbed_run(whole: dict[str, Any], tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    source = random.Random(seed)
    first, rank, second = source.randint(8, 40), source.randint(0, 3), source.randint(50, 75)
    print(f"seed {seed}: rank {rank} is killed at step {first} or a little later, rank 3 gets SIGTERM at step {second}")

    drill = launched(tmp_path / "killed", "--output=broken", "--resume")
    reach(drill, first)
    hit(drill.pid(rank), signal.SIGKILL)
    verdict = drill.end()
    assert verdict["status"] == "failed"
    # Reported by the launch, or by the diagnosis if it can read the OOM counters.
    said_so = (f"rank {rank} (local rank {rank % 2}) was killed by SIGKILL", f"rank {rank} on ")
    assert any(words in verdict["summary"] for words in said_so), verdict["summary"]
    assert "SIGKILL" in verdict["summary"]
    assert processes(drill.launch_id) == {}

    drill = launched(tmp_path / "stopped", "--output=broken", "--resume")
    reach(drill, second)
    hit(drill.pid(3), signal.SIGTERM)
    assert drill.end()["status"] == "healthy", "every rank ended with 0"
    stopped = latest_events(drill)
    assert 0 < stopped["resumed"]["step"] <= stopped["stopped"]["step"] < STEPS
    assert stopped["resumed"]["step"] % 7 == 0, "resume from the last checkpoint before the kill"

    drill = launched(tmp_path / "resumed", "--output=broken", "--resume")
    assert drill.end()["status"] == "healthy"
    resumed = latest_events(drill)
    assert resumed["resumed"]["step"] == stopped["stopped"]["step"]
    assert resumed["summary"]["parameters_sha256"] == whole["summary"]["parameters_sha256"]
    assert resumed["summary"]["accuracy"] == whole["summary"]["accuracy"]


@pytest.mark.slow
def test_scaling_command_compares_one_process_one_node_and_all_nodes(play: Play, tmp_path: Path) -> None:
    requested = {
        "cluster_launch_nodes": ["node1", "node2"],
        "cluster_nproc_per_node": 2,
        "cluster_artifacts_dir": str(tmp_path),
        "comparison_args": [*SMALL, "--samples=960", "--epochs=2", "--global-batch=192"],
        "comparison_env": {"OMP_NUM_THREADS": "1"},
    }
    result = play("playbooks/compare.yml", extravars=requested)
    assert result.rc == 0, result.stdout
    (latest,) = tmp_path.glob("*/latest")
    kept = json.loads((latest / "comparison.json").read_text())
    assert kept["wrong"] == kept["skipped"] == []
    assert [(row["nodes"], row["ranks"]) for row in kept["rows"]] == [
        (["node1"], 1),
        (["node1"], 2),
        (["node1", "node2"], 4),
    ]
    assert {row["global_batch"] for row in kept["rows"]} == {192}
    assert all(row[name] > 0 for row in kept["rows"] for name in ("seconds", "memory_mb", "accuracy", "speed_up"))
    assert "speed-up  efficiency" in next(iter(result.results("Compare the launches").values()))["msg"]
    run = json.loads((latest / "run.json").read_text())
    assert "times as fast as 1 process" in run["sentence"]
    assert run["id"] == latest.resolve().name, "the reported page must contain the table"
    assert "<h2>Speed-up</h2>" in (latest / "report.html").read_text()


@pytest.mark.slow
# bf16 needs a GPU: PyTorch rejects its hook with Gloo.
@pytest.mark.parametrize("hook", ["fp16", "powersgd"])
def test_example_can_train_with_compressed_gradients(hook: str, play: Play, tmp_path: Path) -> None:
    requested = {
        "cluster_launch_nodes": ["node1", "node2"],
        "cluster_nproc_per_node": 1,
        "cluster_artifacts_dir": str(tmp_path),
        "launch_script_src": str(ROOT / "examples/cifar10/train.py"),
        "launch_args": [*SMALL, f"--compress={hook}", "--samples=960", "--epochs=6", "--global-batch=96"],
        "launch_env": {"OMP_NUM_THREADS": "1"},
    }
    result = play("playbooks/launch.yml", extravars=requested)
    assert result.rc == 0, result.stdout
    (log,) = tmp_path.glob("*/latest/logs/node1/rank0.stdout.log")
    found = events(log.read_text())
    assert (found["start"]["processes"], found["step"]["step"]) == (2, 60)
    assert found["summary"]["accuracy"] > 0.5, "random guessing gives 0.1"


# ---------------------------------------------------------------- by hand, on one node


def test_single_process_can_train_on_an_archive(nodes: tuple[Machine, Machine], tmp_path: Path) -> None:
    machine = nodes[0]
    cifar_archive.write(tmp_path / "cifar-10-python.tar.gz")
    subprocess.run(
        ["podman", "cp", str(tmp_path / "cifar-10-python.tar.gz"), f"{machine.container}:{PLACE}"], check=True
    )
    told = as_user(
        machine, "python", TRAIN, f"--data={PLACE}", *SMALL, "--epochs=1", "--global-batch=25", "--output=own"
    )
    found = events(told)
    assert found["data"]["source"].endswith("cifar-10-python.tar.gz, which is not the published one")
    assert (found["step"]["step"], found["step"]["steps"]) == (4, 4), "5 batches of 20 images are 4 steps of 25"
    looked = as_user(machine, "python", "payloads/look_at_example.py", TRAIN, "own/weights.pt", f"{PLACE}/witness")
    assert looked.splitlines() == [
        "weights: loaded without DDP",
        "pickle: refused, pathlib.Path.touch has no place in CIFAR-10",
        "witness: nothing was run",
    ]


def test_low_memory_increases_accumulation_and_keeps_the_batch(nodes: tuple[Machine, Machine]) -> None:
    """Rank 1 runs out of memory with 48 and 24 samples, so both ranks use 12."""
    run = ["torchrun", "--nproc-per-node=2", "--master-port=29600", "payloads/short_of_memory.py", TRAIN, *SMALL]
    told = as_user(nodes[0], *run, "--samples=192", "--epochs=1", "--global-batch=96", "--output=short")
    start = events(told)["start"]
    assert (start["global_batch"], start["accumulation"]) == (96, 4)
    assert events(told)["step"]["step"] == 2


def test_legacy_and_migrated_scripts_compute_the_same_weights(nodes: tuple[Machine, Machine]) -> None:
    ports = "--master_port=29601"
    launch = ["python", "-m", "torch.distributed.launch", "--nproc_per_node=2", ports]
    old = run_ignoring_exit_aborts(nodes[0], *launch, f"{EXAMPLES}/legacy/train_launch.py", "--epochs=2")
    torchrun = ["torchrun", "--nproc-per-node=2", "--master-port=29602"]
    new = as_user(nodes[0], *torchrun, f"{EXAMPLES}/legacy/train_torchrun.py", "--epochs=2")
    assert old.startswith("weights [")
    assert new == old


def test_fsdp2_checkpoint_of_three_ranks_loads_on_two(nodes: tuple[Machine, Machine]) -> None:
    script = f"{EXAMPLES}/fsdp2_checkpoint.py"
    torchrun = ["torchrun", "--master-port=29603"]
    saved = events(as_user(nodes[0], *torchrun, "--nproc-per-node=3", script, "save", "sharded"))["save"]
    loaded = events(as_user(nodes[0], *torchrun, "--nproc-per-node=2", script, "load", "sharded"))["load"]
    assert (saved["processes"], loaded["processes"]) == (3, 2)
    assert loaded["parameters_sha256"] == saved["parameters_sha256"]
