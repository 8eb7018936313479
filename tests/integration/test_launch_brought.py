"""Launches of a module, of a custom command and with accelerate, and the caches of compiled kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import brought
from drill import PAYLOAD, Drill, only_failure, processes
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

WORK = "/srv/muster-test-brought"
# A custom launcher: it reads the plan from its environment and starts its ranks in the background.
OWN_LAUNCHER = """#!/bin/sh
for local in $(seq 0 $((MUSTER_NPROC - 1)))
do
  rank=$((MUSTER_NODE_RANK * MUSTER_NPROC + local))
  (WORLD_SIZE=$MUSTER_WORLD_SIZE RANK=$rank LOCAL_RANK=$local MASTER_ADDR=$MUSTER_MASTER_ADDR \\
   MASTER_PORT=$MUSTER_MASTER_PORT python "$@" || echo $local >>failed) &
done
wait
test ! -e failed || exit 4
"""
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


@pytest.fixture
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> Iterator[tuple[Machine, Machine]]:
    machines = node("node1"), node("node2")
    yield machines
    for machine in machines:
        machine.inside("rm", "--recursive", "--force", WORK)


@pytest.fixture
def drill(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Drill]:
    drill = Drill(tmp_path)
    yield drill
    drill.clean_up(nodes)


def put(machine: Machine, path: str, text: str) -> None:
    machine.inside("sh", "-c", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >"$1"; chmod 755 "$1"', "sh", path, text)


@pytest.mark.slow
def test_compile_caches_are_separate_and_private(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    for machine in nodes:
        put(machine, f"{WORK}/project/__init__.py", "")
        put(machine, f"{WORK}/project/train.py", PAYLOAD.read_text())
    drill.variables.update(launch_script_src="", launch_module="project.train", launch_chdir=WORK)
    drill.begin().in_step()
    seen = [env for env in processes(drill.launch_id).values() if "RANK" in env]
    folders = {env[name] for env in seen for name in CACHES}
    assert len(folders) == 3  # the nodes have equal environments
    assert all(
        folder.startswith("/var/lib/muster/launches/.muster-cache/muster/opt-muster-pytorch-") for folder in folders
    )
    for machine in nodes:
        about = machine.inside("stat", "--format=%U %a", "/var/lib/muster/launches/.muster-cache/muster").stdout
        assert about == "muster 700\n"
    drill.open_gate(nodes[0])
    assert drill.end()["status"] == "healthy"


def test_custom_launcher_runs_all_ranks(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    for machine in nodes:
        put(machine, f"{WORK}/launcher", OWN_LAUNCHER)
    drill.variables["launch_command"] = [f"{WORK}/launcher", "{script}"]
    drill.begin("--fault=raise", "--rank=3")
    until(lambda: len(known_ranks(drill, nodes)) == 4, PATIENCE, "all ranks are found")
    assert known_ranks(drill, nodes) == {("node1", 0, 0), ("node1", 1, 1), ("node2", 2, 0), ("node2", 3, 1)}
    log = drill.run / "logs/node2/command.log"
    until(lambda: log.exists() and "step 3\n" in log.read_text(), PATIENCE, "the output arrives")
    drill.open_gate(nodes[1])
    finding = only_failure(drill.end())
    assert (finding["id"], finding["node"]) == ("launch.exception", "node2")
    assert finding["summary"] == "rank 3 (local rank 1) failed: RuntimeError: sample 17 is broken"
    assert finding["fix"]["command"].endswith("logs/node2/command.log")
    assert processes(drill.launch_id) == {}


def known_ranks(drill: Drill, nodes: tuple[Machine, Machine]) -> set[tuple[str, int, int]]:
    """Return the ranks that the main processes of the launch have recorded."""
    found = set()
    for machine in nodes:
        table = f"/run/muster/launches/{drill.launch_id}/unit/ranks.json"
        text = machine.inside("cat", table, check=False).stdout
        found |= {(machine.name, one["rank"], one["local_rank"]) for one in json.loads(text or "{}").get("ranks", [])}
    return found


@pytest.mark.slow
def test_shell_script_can_call_torchrun(drill: Drill, nodes: tuple[Machine, Machine]) -> None:
    """The script passes no options to torchrun, because its environment contains the plan."""
    for machine in nodes:
        put(machine, f"{WORK}/run.sh", '#!/bin/sh\necho before\ntorchrun "$@"\n')
    drill.variables["launch_command"] = [f"{WORK}/run.sh"]
    drill.begin().in_step()
    drill.open_gate(nodes[0])
    assert drill.end()["status"] == "healthy"
    assert "before\n" in (drill.run / "logs/node1/command.log").read_text()


@pytest.mark.slow
def test_command_with_one_process_per_node_is_reported(drill: Drill) -> None:
    drill.variables.update(launch_script_src="", launch_command=["python", "-c", "print('alone')", "{node_rank}"])
    drill.begin()
    verdict = drill.end()
    assert [one["id"] for one in verdict["findings"] if one["status"] == "warn"] == ["launch.ranks", "launch.ranks"]


def test_missing_command_is_reported(drill: Drill) -> None:
    drill.variables["launch_command"] = ["accelerate-that-is-not-there", "launch", "{node_rank}"]
    drill.begin()
    found = drill.end()["findings"]
    assert {(one["id"], one["node"]) for one in found} == {("launch.command", "node1"), ("launch.command", "node2")}
    said = "accelerate-that-is-not-there was found neither in /opt/muster/pytorch/current/bin nor in PATH"
    assert {one["summary"] for one in found} == {said}


def test_option_that_changes_the_plan_is_refused_before_contacting_nodes(drill: Drill) -> None:
    drill.variables["launch_command"] = ["accelerate", "launch", "--num_processes=8"]
    drill.begin()
    drill.wait()
    said = "launch_command sets --num_processes, which Muster sets for accelerate"
    assert any(said in str(event.get("event_data", {}).get("res")) for event in drill.runner.events)
    assert not list((drill.folder / "kept").glob("*/2*/plan.json"))


# ---------------------------------------------------------------- accelerate


@pytest.fixture
def with_accelerate(drill: Drill, nodes: tuple[Machine, Machine]) -> Drill:
    for machine in nodes:
        brought.install(machine)
    drill.variables.update(launch_command=["accelerate", "launch"], cluster_torchrun=brought.TORCHRUN)
    return drill


@pytest.mark.slow
def test_accelerate_launches_all_ranks(with_accelerate: Drill, nodes: tuple[Machine, Machine]) -> None:
    with_accelerate.begin().in_step()
    assert known_ranks(with_accelerate, nodes) == {
        ("node1", 0, 0),
        ("node1", 1, 1),
        ("node2", 2, 0),
        ("node2", 3, 1),
    }
    with_accelerate.open_gate(nodes[0])
    verdict = with_accelerate.end()
    assert verdict["status"] == "healthy", verdict
    for node in ("node1", "node2"):
        assert (with_accelerate.run / f"logs/{node}/accelerate.log").exists()
