"""Projects are distributed to the nodes of a launch as read-only copies, and data on the nodes is compared.

The ranks need no PyTorch and print the project files that they see.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, listening, processes
from launch_users import make_launch_user
from machines import NODES
from net_faults import shut
from standin_torchrun import TORCHRUN, provide
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

STORE = "/var/lib/muster/launches/.muster-store"
OWN_STORE = "/var/lib/muster/users/ada/launches/.muster-store"
RUNS = "/var/lib/muster/launches"
DATA = "/srv/muster-test-data"
PORT = 29500
TRAIN = """
import os, sys, time
from pathlib import Path
from parts.model import NAME

project = Path(os.environ["MUSTER_PROJECT"])
try:
    (project / "parts/model.py").write_text("NAME = 'other'")
    done = "changed"
except OSError as problem:
    done = type(problem).__name__
try:
    (project / "more.py").write_text("")
    done += " added"
except OSError as problem:
    done += " " + type(problem).__name__
files = sorted(path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file())
print("sees", NAME, done, files, flush=True)
print("in", os.getcwd(), __file__, flush=True)
gate = Path(next(word.partition("=")[2] for word in sys.argv if word.startswith("--until=")))
while not gate.exists():
    time.sleep(0.1)
"""
SENT = [".gitignore", "parts/model.py", "run.sh", "train.py"]


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> list[Machine]:
    machines = [node(name) for name in NODES]
    provide(play, *machines)
    return machines


@pytest.fixture
def project(tmp_path: Path, nodes: list[Machine]) -> Path:
    """Create a git tree with tracked and ignored files. The nodes do not have a copy yet."""
    folder = tmp_path / "project"
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "parts/model.py").write_text("NAME = 'first'\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("*.ckpt\n")
    (folder / "large.ckpt").write_text("ignored")
    (folder / ".env").write_text("HF_TOKEN=nutmeg\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    for machine in nodes:
        machine.inside("rm", "--recursive", "--force", STORE)
    return folder


@pytest.fixture
def launches(tmp_path: Path, nodes: list[Machine]) -> Iterator[Callable[..., Drill]]:
    """Return a function that starts a detached launch whose ranks wait for its gate. Launches end with the test."""
    made: list[Drill] = []

    def begin(user: str = "", **variables: Any) -> Drill:
        folder = tmp_path / f"launch{len(made)}"
        folder.mkdir()
        given = {
            "cluster_torchrun": TORCHRUN,
            "cluster_nproc_per_node": 1,
            "cluster_launch_nodes": [machine.name for machine in nodes],
            "launch_script_src": "",
            "launch_script": "train.py",
            "launch_detached": True,
            "launch_time_limit": 3600,
            **variables,
        }
        made.append(Drill(folder, given, user=user).begin())
        return made[-1]

    yield begin
    for drill in made:
        drill.clean_up(nodes)


def running(drill: Drill, nodes: list[Machine]) -> str:
    """Wait until the ranks run and the controller has detached. Return the output so far."""
    drill.wait()
    shown: str = drill.runner.stdout.read()
    assert "launch.detached" in [finding["id"] for finding in drill.verdict()["findings"]], shown
    assert len([env for env in processes(drill.launch_id).values() if "RANK" in env]) == len(nodes), shown
    return shown


def so_far(drill: Drill) -> str:
    """Return the output of a running play."""
    return "".join(path.read_text(errors="replace") for path in drill.folder.glob("artifacts/*/stdout"))


def finish(drill: Drill, nodes: list[Machine]) -> None:
    for machine in nodes:
        drill.open_gate(machine)
    until(lambda: not drill.runs(), PATIENCE, "the ranks have ended")


def has_printed(drill: Drill, machine: Machine, text: str) -> str:
    """Wait until the rank on the node has printed the text. Return its output."""
    logs = f"{drill.node_folder}/logs"

    def printed() -> str:
        said = machine.inside("sh", "-ec", f"cat $(find {logs} -name stdout.log)").stdout
        return said if text in said else ""

    found: str = until(printed, PATIENCE, f"the rank has printed {text}")
    return found


def refused(drill: Drill, check: str) -> dict[str, str]:
    """Check that no process of the launch runs. Return the reasons for its refusal, by node."""
    verdict = drill.end()
    assert verdict["status"] == "failed", verdict
    assert processes(drill.launch_id) == {}
    failed = [one for one in verdict["findings"] if one["status"] == "fail"]
    assert {one["id"] for one in failed} == {check}, failed
    return {one["node"]: one["summary"] for one in failed}


def test_project_is_copied_to_all_nodes_and_read_only(
    launches: Callable[..., Drill], nodes: list[Machine], project: Path
) -> None:
    drill = launches(launch_project=str(project))
    shown = running(drill, nodes)
    assert ".env is not copied (possible secrets)" in " ".join(shown.split())
    assert "project: 4 files" in shown
    assert "sent to node1 in" in shown
    assert "project: copied from node1 to node2, node3 in" in shown
    there = f"{RUNS}/{drill.launch_id}/project"
    for machine in nodes:
        said = has_printed(drill, machine, "in /var")
        assert f"sees first PermissionError PermissionError {SENT}" in said
        assert f"in /var/lib/muster/work/{drill.launch_id} {there}/train.py" in said
        assert machine.inside("find", there, "!", "-user", "root").stdout == ""
        assert machine.inside("find", there, "!", "-type", "d", "-perm", "/222").stdout == ""
        assert machine.inside("stat", "--format=%a", f"{there}/run.sh").stdout == "555\n"
        for account in ("nobody", "admin"):
            assert machine.inside("runuser", "-u", account, "--", "ls", there, check=False).returncode != 0
            assert machine.inside("runuser", "-u", account, "--", "ls", STORE, check=False).returncode != 0
        assert machine.inside("runuser", "-u", "muster", "--", "ls", STORE, check=False).returncode != 0
        assert machine.inside("ls", f"{STORE}/parts").stdout == ""
        assert machine.inside("pgrep", "-u", "nobody", check=False).stdout == ""
        assert PORT not in listening(machine.container) or machine is nodes[0]
    finish(drill, nodes)

    (project / "parts/model.py").write_text("NAME = 'second'\n")
    again = launches(launch_project=str(project))
    shown = running(again, nodes)
    assert "project: 1 file, " in shown
    for machine in nodes:
        has_printed(again, machine, "sees second")
        assert "first" in machine.inside("cat", f"{there}/parts/model.py").stdout
    finish(again, nodes)

    third = launches(launch_project=str(project))
    shown = running(third, nodes)
    assert "sent to node1" not in shown
    assert "copied from node1 to" not in shown
    finish(third, nodes)


@pytest.mark.slow
def test_file_changed_before_the_start_is_reported_and_stops_the_launch(
    launches: Callable[..., Drill], nodes: list[Machine], project: Path
) -> None:
    first = launches(launch_project=str(project))
    running(first, nodes)
    (project / "parts/model.py").write_text("NAME = 'spoilt'\n")
    waiting = launches(launch_project=str(project), launch_wait=True, launch_detached=False, launch_time_limit=0)
    # By now, its project is on all nodes and no rank has started.
    until(lambda: "waiting: node1: launch" in so_far(waiting), PATIENCE, "the launch waits")
    assert "project: copied from node1 to node2, node3 in" in so_far(waiting)
    node2 = nodes[1]
    changed = node2.inside("sh", "-ec", f"grep -l spoilt {STORE}/objects/*").stdout.strip()
    node2.inside("sh", "-ec", f"echo \"NAME = 'forged'\" > {changed}")
    finish(first, nodes)
    said = refused(waiting, "launch.failed")
    assert said.keys() == {"node2"}
    assert "parts/model.py was changed on this node (sha256 mismatch)" in said["node2"]
    # The next launch restores the file.
    last = launches(launch_project=str(project))
    assert "project: copied from node1 to node2 in" in running(last, nodes)
    finish(last, nodes)


def test_project_of_a_user_launch_is_private_and_read_only(
    launches: Callable[..., Drill], nodes: list[Machine], project: Path
) -> None:
    make_launch_user("ada", nodes)
    for machine in nodes:
        machine.inside("rm", "--recursive", "--force", OWN_STORE)
    drill = launches("ada", launch_project=str(project))
    assert "project: copied from node1 to node2, node3 in" in running(drill, nodes)
    there = f"{drill.node_folder}/project"
    for machine in nodes:
        assert f"sees first PermissionError PermissionError {SENT}" in has_printed(drill, machine, "in /var")
        for path in (there, OWN_STORE):
            assert machine.inside("find", path, "!", "-user", "ada").stdout == ""
            assert machine.inside("find", path, "-perm", "/077").stdout == ""
        assert machine.inside("find", there, "-perm", "/222").stdout == ""
        assert machine.inside("pgrep", "-f", "distribution", check=False).stdout == ""
    finish(drill, nodes)


@pytest.mark.slow
def test_closed_port_between_nodes_is_reported_with_both_nodes(
    launches: Callable[..., Drill], nodes: list[Machine], project: Path
) -> None:
    with shut(nodes[0], nodes[2], PORT, str(PORT), "drop", refused=False):
        closed = launches(launch_project=str(project), cluster_launch_nodes=["node1", "node3"])
        said = refused(closed, "launch.project")
    assert said.keys() == {"node3"}
    assert f"received no content from node1 ({nodes[0].address} port {PORT})" in said["node3"]
    for machine in nodes:
        assert machine.inside("pgrep", "-u", "nobody", check=False).stdout == ""


def test_differing_data_is_reported(launches: Callable[..., Drill], nodes: list[Machine], project: Path) -> None:
    for machine in nodes:
        made = f"rm -rf {DATA}; mkdir -p {DATA}/train; cd {DATA}; echo a > train/a; echo b > train/b"
        machine.inside("sh", "-ec", f"{made}; sha256sum train/* > SHA256SUMS")
    given = {"launch_project": str(project), "launch_data": [f"{DATA}/train", f"{DATA}/SHA256SUMS"]}
    same = launches(**given)
    running(same, nodes)
    finish(same, nodes)
    nodes[1].inside("rm", f"{DATA}/train/b")
    nodes[2].inside("sh", "-ec", f"echo c >> {DATA}/SHA256SUMS")
    assert refused(launches(**given), "launch.data") == {
        "node2": f"{DATA}/train differs from node1, node3: missing b",
        "node3": f"{DATA}/SHA256SUMS differs from node1, node2: 150 bytes here; 148 bytes there",
    }
    nodes[0].inside("chmod", "700", DATA)
    assert "is not readable (as muster)" in refused(launches(**given), "launch.data")["node1"]
    for machine in nodes:
        machine.inside("rm", "--recursive", "--force", DATA)
