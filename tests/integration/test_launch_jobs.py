"""Launches and their results are listed, followed, fetched and ended from another controller or by other users.

The nodes use a torchrun stub. The other controller has its own artifacts and knows only what the nodes report.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

import standin_torchrun
from drill import Drill, processes
from launch_users import make_launch_user
from paths import ARTIFACTS, ROOT
from people import people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from acceptance_runs import Run
    from machines import Machine, Play, Result

pytestmark = pytest.mark.slow

PAYLOAD = ROOT / "tests/integration/payloads/results.py"


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    machines = node("node1"), node("node2")
    standin_torchrun.provide(play, *machines)
    make_launch_user("ada", machines)
    return machines


@pytest.fixture
def begin(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Callable[..., Drill]]:
    """Return a function that starts a launch. Each launch has its own controller folder unless a folder is given."""
    begun: list[Drill] = []

    def one(*arguments: str, user: str = "", folder: Path | None = None, **variables: Any) -> Drill:
        given = {"cluster_torchrun": standin_torchrun.TORCHRUN, "launch_script_src": str(PAYLOAD), **variables}
        at = folder or tmp_path / f"controller{len(begun)}"
        at.mkdir(exist_ok=True)
        begun.append(Drill(at, given, user=user))
        return begun[-1].begin(*arguments)

    yield one
    for drill in begun:
        drill.clean_up(nodes)


@pytest.fixture
def other_controller(play: Play, tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs playbooks/jobs.yml on a controller without launches."""

    def run(user: str = "", **variables: Any) -> Result:
        known = {"cluster_artifacts_dir": str(tmp_path / "elsewhere")}
        return play("playbooks/jobs.yml", extravars={**known, **({"ansible_user": user} if user else {}), **variables})

    return run


def kept(tmp_path: Path, drill: Drill) -> Path:
    return tmp_path / "elsewhere" / ARTIFACTS.name / drill.launch_id


def contents(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json") if path.is_file()
    }


@pytest.mark.parametrize("user", ["", "ada"], ids=["administrator", "user"])
def test_second_controller_follows_and_stops_a_launch(
    begin: Callable[..., Drill], other_controller: Callable[..., Result], tmp_path: Path, user: str
) -> None:
    """The ranks have time for a checkpoint. Their results are fetched by the controller that stops the launch."""
    drill = begin("--save=3", user=user, launch_detached=True, launch_time_limit=1800, launch_fetch=["results/*"])
    drill.wait()
    launch_id, whose = drill.launch_id, f"user launch of {user}" if user else "muster"
    assert launch_id in processes_of(drill)
    listed = other_controller(user)
    assert listed.rc == 0, listed.stdout
    line = next(line for line in listed.stdout.splitlines() if line.strip().startswith(launch_id))
    assert f"running  {whose} (by " in line
    assert "results.py on node1, node2 (4 ranks)  no GPUs  for " in line
    assert "step " in listed.stdout
    assert not kept(tmp_path, drill).exists()

    followed = other_controller(user, jobs_stop=launch_id)
    assert "SIGTERM was sent to the ranks, which have 30 s until SIGKILL (launch_stop_timeout)" in followed.stdout
    assert followed.rc == 0, followed.stdout
    assert not processes(launch_id)
    home = kept(tmp_path, drill) / "fetched"
    assert set(contents(home)) == {
        f"node{1 + rank // 2}/results/{name}-{rank}.json" for rank in range(4) for name in ("first", "last")
    }
    assert all(content["launch"] == launch_id for content in contents(home).values())
    assert not (home / "node1/results/link").is_symlink()
    assert "1 item not fetched: node1: results/link: is a link" in followed.stdout
    verdict = json.loads((kept(tmp_path, drill) / "verdict.json").read_text())
    assert ("launch.fetched", "warn", "node1") in {
        (one["id"], one["status"], one["node"]) for one in verdict["findings"]
    }

    over = other_controller(user, jobs_history=True)
    line = next(line for line in over.stdout.splitlines() if line.strip().startswith(launch_id))
    assert f"stopped by a user  {whose}" in line
    assert "ago" in line
    none = other_controller(user, jobs_stop="20200101-000000-abcd")
    assert none.rc != 0
    assert "Launch 20200101-000000-abcd is not known on this controller or on node1, node2" in none.stdout


def test_administrator_can_follow_and_end_a_user_launch(
    begin: Callable[..., Drill], other_controller: Callable[..., Result], nodes: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """The administrator acts as the launch user, so root leaves no files in the folders of the launch."""
    drill = begin("--save=1", user="ada", launch_detached=True, launch_time_limit=1800, launch_fetch=["results/*"])
    drill.wait()
    launch_id = drill.launch_id
    watching = Drill(tmp_path / "watching", {"jobs_attach": launch_id}, playbook="playbooks/jobs.yml")
    watching.folder.mkdir()
    process = watching.begin_in_terminal()
    until(lambda: b"step " in watching.shown, PATIENCE, "output of rank 0 is followed")
    os.write(watching.terminal, b"\x03")
    assert process.wait(PATIENCE) is not None
    assert drill.runs()

    ended = other_controller(jobs_stop=launch_id)
    assert ended.rc == 0, ended.stdout
    assert not processes(launch_id)
    assert len(contents(kept(tmp_path, drill) / "fetched")) == 8
    for machine in nodes:
        assert machine.inside("find", "/var/lib/muster/users/ada", "!", "-user", "ada").stdout == ""
        assert machine.inside("test", "-e", drill.state_on(machine), check=False).returncode != 0
    assert f"{launch_id}  stopped by a user  user launch of ada" in other_controller(jobs_history=True).stdout


def test_user_without_root_cannot_end_the_launch_of_another_user(
    begin: Callable[..., Drill], other_controller: Callable[..., Result], nodes: tuple[Machine, Machine]
) -> None:
    drill = begin(user="ada", launch_detached=True, launch_time_limit=1800)
    drill.wait()
    stop = {"cluster_artifacts_dir": str(drill.folder / "kept"), "jobs_stop": drill.launch_id}
    with people(nodes, carl=4711) as [carl]:
        access = {"ansible_user": carl.name, "ansible_ssh_private_key_file": str(carl.key)}
        refused = other_controller(**access, **stop)
    assert refused.rc != 0
    said = f"launch {drill.launch_id} is a user launch of ada, but the login account is carl, which cannot act as ada: "
    assert said in refused.stdout
    assert drill.runs()
    assert other_controller("ada", **stop).rc == 0
    assert not drill.runs()


def processes_of(drill: Drill) -> set[str]:
    return {env["MUSTER_LAUNCH_ID"] for env in processes(drill.launch_id).values()}


def test_user_can_list_but_not_end_launches_of_others(
    begin: Callable[..., Drill], other_controller: Callable[..., Result], nodes: tuple[Machine, Machine]
) -> None:
    drill = begin(launch_detached=True, launch_time_limit=1800)
    drill.wait()
    seen = other_controller("ada")
    assert seen.rc == 0, seen.stdout
    assert f"{drill.launch_id}  running  muster" in seen.stdout
    assert "step " not in seen.stdout, "only the training user may read the logs"
    refused = other_controller("ada", jobs_stop=drill.launch_id)
    assert refused.rc != 0
    assert drill.runs()
    for machine in nodes:
        drill.open_gate(machine)
    until(lambda: not drill.runs(), PATIENCE, "the launch ends")


def test_results_are_fetched_after_a_failure(begin: Callable[..., Drill]) -> None:
    drill = begin("--steps=5", "--code=3", launch_fetch=["results/*.json", "nothing"], launch_fetch_max_mb=1)
    verdict = drill.end()
    assert verdict["status"] == "failed"
    assert set(contents(drill.run / "fetched")) == {
        f"node{1 + rank // 2}/results/{name}-{rank}.json" for rank in range(4) for name in ("first", "done")
    }
    assert "fetched 8 files" in drill.runner.stdout.read()


@pytest.mark.parametrize("user", ["", "ada"], ids=["administrator", "user"])
def test_list_shows_the_last_output_of_the_first_failed_rank(
    begin: Callable[..., Drill], other_controller: Callable[..., Result], user: str
) -> None:
    """The launcher writes last, but its output is not shown."""
    drill = begin("--broken=3", user=user)
    assert drill.end()["status"] == "failed"
    for asker in {"", user}:
        listed = other_controller(asker, jobs_history=True)
        lines = [line.strip() for line in listed.stdout.splitlines()]
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{drill.launch_id}  failed"))
        assert lines[at + 1] == "rank 3 (node2, local rank 1) failed first: ValueError: sample 3 is broken"
        assert lines[at + 2 : at + 4] == [
            'node2 1/stderr:     raise ValueError(f"sample {step} is broken")',
            "node2 1/stderr: ValueError: sample 3 is broken",
        ]


def test_time_limit_leaves_time_for_a_checkpoint(begin: Callable[..., Drill]) -> None:
    drill = begin("--save=6", launch_time_limit=5, launch_fetch=["results"])
    verdict = drill.end()
    assert verdict["status"] == "failed"
    assert "the launch reached its time limit" in verdict["summary"]
    said = drill.runner.stdout.read()
    assert "The time limit was reached: SIGTERM was sent to the ranks, which have 30 s until SIGKILL" in said
    assert {f"node{1 + rank // 2}/results/last-{rank}.json" for rank in range(4)} <= set(
        contents(drill.run / "fetched")
    )


def test_ranks_are_killed_after_the_stop_timeout(begin: Callable[..., Drill]) -> None:
    drill = begin("--save=300", launch_detached=True, launch_time_limit=1800)
    drill.wait()
    stop = Drill(drill.folder, {**drill.variables, "launch_stop": drill.launch_id, "launch_stop_timeout": 3})
    began = time.monotonic()
    stop.begin().wait()
    assert time.monotonic() - began > 3
    assert not processes(drill.launch_id)
    assert "have 3 s until SIGKILL" in stop.runner.stdout.read()


def test_output_is_followed_from_another_controller_until_ctrl_c(begin: Callable[..., Drill], tmp_path: Path) -> None:
    drill = begin(launch_detached=True, launch_time_limit=1800)
    drill.wait()
    reader = Drill(tmp_path / "reader", {"jobs_logs": drill.launch_id, "jobs_rank": -1}, playbook="playbooks/jobs.yml")
    (tmp_path / "reader").mkdir()
    process = reader.begin_in_terminal()
    until(lambda: all(f"[rank {rank}] step ".encode() in reader.shown for rank in range(4)), PATIENCE, "all ranks")
    os.write(reader.terminal, b"\x03")
    assert process.wait(PATIENCE) is not None
    assert drill.runs()
    assert drill.pid(0)
    os.kill(drill.pid(0), signal.SIGKILL)
    until(lambda: not drill.runs(), PATIENCE, "the launch ends")


def test_results_of_a_launch_survive_twelve_later_acceptance_tests(
    begin: Callable[..., Drill], smoke: Callable[..., Run], nodes: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """Logs of finished launches are removed. Files in the working folder of a launch stay until a user deletes them."""
    first = begin("--steps=2", launch_fetch=["results/done-*"], folder=tmp_path / "one")
    assert first.end()["status"] in ("healthy", "degraded")
    launch_id, run = first.launch_id, first.run
    for _ in range(12):
        assert smoke("world", cluster_nproc_per_node=1).verdict["status"] == "healthy"
    for number, machine in enumerate(nodes):
        assert machine.inside("test", "-e", f"/var/lib/muster/launches/{launch_id}", check=False).returncode != 0
        path = f"/var/lib/muster/work/{launch_id}/results/done-{2 * number}.json"
        assert json.loads(machine.inside("cat", path).stdout)["launch"] == launch_id
    assert len(contents(run / "fetched")) == 4
