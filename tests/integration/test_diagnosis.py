"""Failed launches on real nodes are diagnosed automatically and on request."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import net_faults
from drill import PAYLOAD, Drill, all_pids, environ, fields, hit, processes, read_proc
from launch_users import make_launch_user
from machines import NODES, find_machine
from paths import INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

pytestmark = pytest.mark.moment

USER = "ada"
SOON = 20.0  # limit of a diagnosis in seconds


@pytest.fixture(scope="module")
def nodes(with_pytorch: None) -> list[Machine]:
    machines = [find_machine(name) for name in NODES]
    make_launch_user(USER, machines)
    return machines


@pytest.fixture
def drill(request: pytest.FixtureRequest, tmp_path: Path, nodes: list[Machine]) -> Iterator[Drill]:
    """Yield a drill with one rank on each of three nodes. Parameter: the user of a user launch."""
    variables = {"cluster_launch_nodes": list(NODES), "cluster_nproc_per_node": 1}
    drill = Drill(tmp_path, variables, user=getattr(request, "param", ""))
    yield drill
    drill.clean_up(nodes)


@pytest.fixture
def by_hand(play: Play, tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs playbooks/diagnose.yml on the controller of the drill."""

    def run(**variables: Any) -> Result:
        return play("playbooks/diagnose.yml", extravars={"cluster_artifacts_dir": str(tmp_path / "kept"), **variables})

    return run


def diagnosed(drill: Drill) -> dict[str, Any]:
    """Return the diagnosis of a failed launch. Check that screen and file agree, and that no process is left."""
    result = drill.result()
    said: dict[str, Any] = result["diagnosis"]
    kept = json.loads((drill.run / "diagnosis.json").read_text())["lines"]
    assert kept[:-1] == said["lines"][:-1]
    assert "ansible" not in kept[-1] or f" -i {INVENTORY.relative_to(ROOT)}" in kept[-1]  # ready to copy and paste
    for name in ("diagnosis.json", "evidence.json"):
        assert (drill.run / name).stat().st_mode & 0o777 == 0o600
    assert all(line in result["msg"] for line in said["lines"])
    took = (drill.run / "diagnosis.json").stat().st_mtime - result["timing"]["cleaned"]
    noticed = (drill.run / "diagnosis.json").stat().st_mtime - result["timing"]["noticed"]
    print(f"five lines {took:.1f} s after the end, {noticed:.1f} s after the failure was noticed")
    print("\n".join(said["lines"]))
    assert took < SOON * drill.stretch
    assert processes(drill.launch_id) == {}
    return said


def causes(said: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    return [(one["id"], one["node"], one["rank"]) for one in said["causes"]]


def test_exception_in_a_rank_is_diagnosed(drill: Drill, nodes: list[Machine], by_hand: Callable[..., Result]) -> None:
    drill.begin("--fault=raise", "--rank=1").in_step(3)
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: not drill.is_running() or drill.has_verdict())
    verdict = drill.end()
    said = diagnosed(drill)
    assert (said["word"], causes(said)) == ("confirmed", [("process.exception", "node2", 1)])
    assert said["lines"][1] == "Where: node2, rank 1"
    assert "sample 17 is broken" in said["lines"][2]
    assert verdict["summary"].startswith("node2: rank 1 (local rank 0) failed: RuntimeError: sample 17 is broken")
    assert [one["node"] for one in verdict["findings"] if one["id"] == "launch.cause"] == ["node2"]
    again = by_hand()
    assert again.rc == 0, again.stdout
    assert all(line in again.stdout.replace("\n", "") for line in said["lines"][:2])


@pytest.mark.slow
def test_stopped_rank_is_diagnosed(drill: Drill) -> None:
    drill.variables["launch_stall_timeout"] = 4
    drill.begin().in_step(3)
    pid = drill.pid(2)
    drill.fault(lambda: hit(pid, signal.SIGSTOP), lambda: fields(pid)[0] == "T")
    drill.end()
    said = diagnosed(drill)
    assert (said["word"], causes(said)) == ("confirmed", [("process.stopped", "node3", 2)])


@pytest.mark.slow
def test_filtered_port_during_rendezvous_is_diagnosed(drill: Drill, nodes: list[Machine]) -> None:
    """The probe before the start is disabled, because it would find the fault and refuse the launch."""
    drill.variables.update(launch_probe=False, launch_rendezvous_timeout=10)
    port = net_faults.PORT
    with net_faults.shut(nodes[0], nodes[1], port, f"{port} ip saddr {nodes[1].address}", "drop", refused=False):
        verdict = drill.begin().end()
        said = diagnosed(drill)
    assert said["word"] == "confirmed", said
    [cause] = said["causes"]
    assert {cause["node"], cause["peer"]} == {"node1", "node2"}
    assert cause["group"] == "head"
    assert "net.master_port.dropped" in cause["proofs"][0]["source"]
    assert verdict["summary"].startswith(f"{cause['node']}: {cause['says']}")


@pytest.mark.parametrize("drill", [USER], indirect=True)
def test_user_launch_skips_checks_that_need_root(drill: Drill) -> None:
    drill.begin().in_step(3)
    pid = drill.pid(1)
    drill.fault(lambda: hit(pid, signal.SIGKILL), lambda: pid not in processes(drill.launch_id))
    drill.end()
    said = diagnosed(drill)
    evidence = json.loads((drill.run / "evidence.json").read_text())
    assert all(one["kernel"] is None and one["unseen"]["kernel"] for one in evidence["end"].values())
    open_questions = " ".join(line for one in [*said["causes"], *said["candidates"]] for line in one["open"])
    assert "kernel.oom" in open_questions


def test_unknown_and_successful_launches_are_reported(
    drill: Drill, nodes: list[Machine], by_hand: Callable[..., Result]
) -> None:
    assert "No launch was started from this controller" in by_hand().stdout
    drill.begin("--steps=3").end()
    done = by_hand()
    assert done.rc == 0
    assert "Nothing to diagnose: launch " in done.stdout
    missing = by_hand(launch="20200101-000000-abcd")
    assert missing.rc != 0
    assert "Launch 20200101-000000-abcd is not known on this controller" in missing.stdout


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return the folder for the user's torchrun logs, one file per node."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def manual_launch(request: pytest.FixtureRequest, nodes: list[Machine], logs: Path, tmp_path: Path) -> Iterator[Drill]:
    """Start torchrun on two nodes without Muster. Rank 1 causes a fault once its gate file exists."""
    gate = Drill(tmp_path, {}).gate
    torchrun = "/opt/muster/pytorch/current/bin/torchrun"
    begun: list[subprocess.Popen[bytes]] = []
    for place, machine in enumerate(nodes[:2]):
        subprocess.run(["podman", "cp", str(PAYLOAD), f"{machine.container}:/tmp/steps.py"], check=True)
        words = [torchrun, "--nnodes=2", f"--node-rank={place}", "--nproc-per-node=1", "--master-port=29555"]
        words += [
            f"--master-addr={nodes[0].address}",
            "/tmp/steps.py",
            f"--until={gate}",
            f"--fault={request.param}",
            "--rank=1",
        ]
        # These machines have no cluster names. By host name, the ranks would meet on loopback and end.
        env = ["--env", "MUSTER_BACKEND=gloo", "--env", "GLOO_SOCKET_IFNAME=eth0"]
        argv = ["podman", "exec", "--user", USER, *env, machine.container, *words]
        with (logs / f"{machine.name}.log").open("wb") as log:
            begun.append(subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT))
    drill = Drill(tmp_path, gate=gate)
    try:
        yield drill
    finally:
        for machine in nodes[:2]:
            for pid in manual_processes(machine):
                hit(pid, signal.SIGKILL)
            machine.inside("rm", "--force", gate, "/tmp/steps.py")
        for process in begun:
            process.wait(PATIENCE)


def manual_processes(machine: Machine) -> list[int]:
    """Return the pids of the manual launch on this machine, found by the port of the launch."""
    mine = [pid for pid in all_pids() if "--master-port=29555" in read_proc(pid, "cmdline")]
    mine += [pid for pid in all_pids() if environ(pid).get("MASTER_PORT") == "29555"]
    return [pid for pid in mine if environ(pid).get("HOSTNAME") == machine.inside("hostname").stdout.strip()]


def running_ranks() -> set[str]:
    return {env["RANK"] for pid in all_pids() if (env := environ(pid)).get("MASTER_PORT") == "29555" and "RANK" in env}


@pytest.mark.parametrize("manual_launch", ["sleep"], indirect=True)
def test_hanging_manual_launch_is_diagnosed(
    manual_launch: Drill, nodes: list[Machine], by_hand: Callable[..., Result]
) -> None:
    until(lambda: {"0", "1"} <= running_ranks(), PATIENCE, "both ranks run")
    manual_launch.open_gate(nodes[1])
    done = by_hand(live=True)
    assert done.rc == 0, done.stdout
    [result] = done.results("Diagnose the launch").values()
    evidence = json.loads((Path(result["artifacts"]) / "evidence.json").read_text())
    assert evidence["launch"]["how"] == "foreign"
    assert [one["node"] for one in evidence["launch"]["nodes"]] == ["node1", "node2"]
    assert {shot["rank"] for all_of in evidence["agents"].values() for one in all_of for shot in one["ranks"]} == {0, 1}
    assert result["diagnosis"]["lines"][0].startswith("Symptom: ")
    assert {"0", "1"} <= running_ranks()  # still running


@pytest.mark.pipeline
@pytest.mark.parametrize("manual_launch", ["raise"], indirect=True)
def test_log_folder_of_a_manual_launch_is_diagnosed(
    manual_launch: Drill, nodes: list[Machine], logs: Path, by_hand: Callable[..., Result]
) -> None:
    """The nodes are not contacted, so no cause can be confirmed."""
    until(lambda: {"0", "1"} <= running_ranks(), PATIENCE, "both ranks run")
    manual_launch.open_gate(nodes[1])
    until(lambda: not any(manual_processes(machine) for machine in nodes[:2]), PATIENCE, "torchrun has ended")
    assert "sample 17 is broken" in (logs / "node2.log").read_text()
    done = by_hand(log=str(logs))
    assert done.rc == 0, done.stdout
    [result] = done.results("Diagnose the launch").values()
    said = result["diagnosis"]
    assert said["lines"][0] == "Symptom: rank 1, node2: RuntimeError: sample 17 is broken", said["lines"]
    assert said["lines"][1] == "Where: node2, rank 1"
    assert said["word"] == "likely"
