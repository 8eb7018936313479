"""A detached launch with restarts on three nodes: its watcher continues without the controller."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drill import hit, processes
from launch_users import forget_launch_users
from machines import NODES
from paths import NAME, ROOT
from people import check_out, people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from machines import Machine, Play
    from people import Person

pytestmark = [pytest.mark.moment, pytest.mark.slow]

SCRIPT = ROOT / "tests/integration/payloads/watched.py"
GATE = "/var/tmp/muster-test-watched"
CLUSTER = "sandbox" if NAME == "muster" else NAME
MARK = "c9f1e7a05b8d4e62"  # value of a variable whose name looks like a secret
LAUNCH = {
    "launch_script_src": "../train.py",
    "launch_args": [GATE],
    "launch_env": {"TEST_TOKEN": MARK},
    "launch_detached": True,
    "launch_time_limit": 3600,
    "launch_restarts": 3,
    "launch_fetch": ["result-*.txt"],
    "cluster_nproc_per_node": 1,
}


@pytest.fixture(scope="module")
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> list[Machine]:
    machines = [node(name) for name in NODES]
    for machine in machines:
        forget_launch_users(machine)
    return machines


@pytest.fixture(scope="module")
def anna_and_ben(nodes: list[Machine], play: Play) -> Iterator[tuple[Person, Person]]:
    """Yield two launch users. Only anna can log in between the nodes."""
    with people(nodes, anna=2001, ben=2002) as (anna, ben):
        given = {"launch_users": ["anna", "ben"], "ssh_mesh_users": ["anna"]}
        made = play("site.yml", tags="network,launch_users", extravars=given)
        assert made.rc == 0, made.stdout
        assert play("playbooks/share.yml", extravars={"share_to": str(anna.folder / "lab")}).rc == 0
        shutil.copytree(anna.folder / "lab", ben.folder / "lab")
        for person in (anna, ben):
            check_out(person)
            shutil.copy(SCRIPT, person.folder / "train.py")
        try:
            yield anna, ben
        finally:
            for machine in nodes:
                machine.inside("systemctl", "stop", f"user@{anna.uid}.service", f"user@{ben.uid}.service", check=False)
            assert play("site.yml", tags="launch_users", extravars={"launch_users": []}).rc == 0


@pytest.fixture
def anna(anna_and_ben: tuple[Person, Person], nodes: list[Machine]) -> Iterator[Person]:
    yield anna_and_ben[0]
    for machine in nodes:
        machine.inside("rm", "--force", GATE)


@pytest.fixture
def other_host(anna: Person, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Yield the same user on another controller without launches."""
    other = replace(anna, folder=anna.folder / "elsewhere")
    if not other.folder.exists():
        other.folder.mkdir()
        shutil.copy(anna.key, other.key)
        shutil.copytree(anna.folder / "lab", other.folder / "lab")
        check_out(other)
    return other


class Watched:
    """One launch, as seen by its user on the head node."""

    def __init__(self, person: Person, head: Machine) -> None:
        self.person = person
        self.head = head
        self.begun = person.run("ansible-playbook", "playbooks/launch.yml", "-i", "../lab", "-e", json.dumps(LAUNCH))
        assert self.begun.returncode == 0, self.begun.stdout + self.begun.stderr
        self.launch_id = newest(person).name
        self.folder = f"/run/user/{person.uid}/muster/watchers/{self.launch_id}"

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.head.inside("cat", f"{self.folder}/state.json").stdout)
        return found

    def attempts(self) -> list[str]:
        return [one["launch_id"] for one in self.state()["attempts"]]

    def systemctl(self, *words: str) -> str:
        asked = f"XDG_RUNTIME_DIR=/run/user/$(id -u) exec systemctl --user {shlex.join(words)}"
        command = ("su", "--shell", "/bin/sh", self.person.name, "--command", asked)
        return self.head.inside(*command, check=False).stdout.strip()

    def wait_for_the_end(self) -> None:
        until(lambda: self.systemctl("is-active", self.unit) == "inactive", PATIENCE, "the watcher has ended")

    @property
    def unit(self) -> str:
        return f"muster-watch-{self.launch_id}.service"

    def runs(self) -> dict[int, dict[str, str]]:
        """Return the processes of all attempts on all nodes."""
        return {pid: env for one in self.attempts() for pid, env in processes(one).items()}

    def rank_of(self, launch_id: str, rank: int) -> int:
        (pid,) = [
            pid for pid, env in processes(launch_id).items() if env.get("RANK") == str(rank) and "LOCAL_RANK" in env
        ]
        return pid


def newest(person: Person) -> Path:
    return max((person.checkout / "artifacts" / CLUSTER).glob("2*-*-*/plan.json")).parent


def run_as(person: Person, playbook: str, **variables: Any) -> CompletedProcess[str]:
    return person.run("ansible-playbook", playbook, "-i", "../lab", "-e", json.dumps(variables))


def fail_once(launch: Watched) -> None:
    """Kill a rank of the first attempt and wait for the next attempt."""
    hit(launch.rank_of(launch.launch_id, 1), signal.SIGKILL)
    until(lambda: len(launch.attempts()) == 2, PATIENCE, "attempt 2 has started")
    second = launch.attempts()[1]
    until(lambda: len(ranks_of(second)) == len(NODES), PATIENCE, "the ranks of attempt 2 run")


def ranks_of(launch_id: str) -> set[str]:
    return {env["RANK"] for env in processes(launch_id).values() if "LOCAL_RANK" in env}


def test_watcher_restarts_without_the_controller(nodes: list[Machine], anna: Person, other_host: Person) -> None:
    launch = Watched(anna, nodes[0])
    assert "node1 watches the launch and starts further attempts; user launch of anna (no root)" in launch.begun.stdout
    assert launch.systemctl("is-active", launch.unit) == "active"
    kept = nodes[0].inside("find", launch.folder, "-type", "f", "-printf", "%f %m\\n").stdout.split("\n")
    assert {"watcher.pyz 600", "state.json 600"} <= set(kept)
    assert not [one for one in kept if one.startswith("spec.json")]
    said = (
        nodes[0].inside("sh", "-c", f"cat {launch.folder}/state.json; cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    )
    assert MARK not in said
    fail_once(launch)
    listed = run_as(other_host, "playbooks/jobs.yml")
    assert listed.returncode == 0, listed.stdout
    assert f"attempt 2 of {launch.launch_id}, watched on node1" in " ".join(listed.stdout.split())
    for machine in nodes:
        anna.ssh(machine, f"touch {GATE}")
    attached = run_as(other_host, "playbooks/launch.yml", launch_attach=launch.launch_id)
    assert attached.returncode == 0, attached.stdout + attached.stderr
    folder = other_host.checkout / "artifacts" / CLUSTER / launch.launch_id
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["status"] == "degraded", verdict
    (restarted,) = [one for one in verdict["findings"] if one["id"] == "launch.restarted"]
    assert (restarted["node"], "SIGKILL" in restarted["summary"]) == ("node2", True)
    fetched = sorted(path.read_text() for path in folder.glob("fetched/*/result-*.txt"))
    assert fetched == ["3\n"] * 3, attached.stdout
    first, second = launch.attempts()
    assert [one["launch_id"] for one in json.loads((folder / "attempts.json").read_text())["attempts"]] == [
        first,
        second,
    ]
    for number, name in enumerate((first, second), 1):
        log = folder.parent / name / "logs/node1/rank0.stdout.log"
        assert f"rank 0 in attempt {number} knows the sum 3" in log.read_text()
    assert MARK not in attached.stdout
    assert launch.runs() == {}
    launch.wait_for_the_end()


def test_stop_ends_the_watcher_before_the_attempt(nodes: list[Machine], anna: Person, other_host: Person) -> None:
    launch = Watched(anna, nodes[0])
    fail_once(launch)
    second = launch.attempts()[1]
    until(lambda: len(processes(second)) >= 3, PATIENCE, "attempt 2 runs")
    stopped = run_as(other_host, "playbooks/jobs.yml", jobs_stop=second)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "Asked the watcher on node1 to stop the launch" in stopped.stdout
    launch.wait_for_the_end()
    assert launch.runs() == {}
    assert len(launch.attempts()) == 2
    verdict = json.loads((other_host.checkout / "artifacts" / CLUSTER / launch.launch_id / "verdict.json").read_text())
    assert "ended by hand" in verdict["summary"], verdict


def test_stop_between_two_attempts_prevents_the_next(nodes: list[Machine], anna: Person) -> None:
    launch = Watched(anna, nodes[0])
    # The watcher is stopped, so that the first attempt ends with its lease and no other starts.
    launch.systemctl("kill", "--signal=STOP", launch.unit)
    until(lambda: launch.runs() == {}, PATIENCE, "the lease has ended the first attempt")
    assert len(launch.attempts()) == 1
    stopped = run_as(anna, "playbooks/launch.yml", launch_stop=launch.launch_id)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    launch.wait_for_the_end()
    assert len(launch.attempts()) == 1
    assert launch.runs() == {}


def test_launch_ends_with_its_watcher_and_the_reason_is_reported(nodes: list[Machine], anna: Person) -> None:
    launch = Watched(anna, nodes[0])
    assert len(launch.runs()) >= 3
    launch.systemctl("kill", "--signal=KILL", launch.unit)
    launch.wait_for_the_end()
    until(lambda: launch.runs() == {}, PATIENCE, "the lease has ended the launch on all nodes")
    attached = run_as(anna, "playbooks/launch.yml", launch_attach=launch.launch_id)
    assert attached.returncode != 0
    verdict = json.loads((newest(anna) / "verdict.json").read_text())
    assert "launch.watcher" in {one["id"] for one in verdict["findings"]}, verdict
    assert "node1" in attached.stdout


def test_launch_without_node_logins_is_refused(anna_and_ben: tuple[Person, Person], nodes: list[Machine]) -> None:
    _, ben = anna_and_ben
    refused = run_as(ben, "playbooks/launch.yml", **LAUNCH)
    assert refused.returncode != 0
    said = " ".join(refused.stdout.split())
    assert "ben cannot log in from node1, where the watcher would run" in said
    verdict = json.loads((newest(ben) / "verdict.json").read_text())
    assert [(one["id"], one["node"]) for one in verdict["findings"]] == [
        ("launch.watcher", n) for n in ("node2", "node3")
    ]
    assert "-e ssh_mesh_users=ben" in said
    for machine in nodes:
        assert processes(newest(ben).name) == {}
        assert machine.inside("ls", "/run/user/2002/muster/watchers", check=False).stdout == ""
