"""Launches by users without sudo, in their own user managers, on real nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from drill import CLEAN, NOTICED, Drill, failures, processes, read_proc
from launch_users import GROUP, make_launch_user
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.moment


@pytest.fixture(scope="module", autouse=True)
def users(with_pytorch: None, node: Callable[[str], Machine]) -> None:
    machines = [node(name) for name in ("node1", "node2")]
    for name in ("ada", "bob"):
        make_launch_user(name, machines)


@pytest.fixture
def nodes(node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    return node("node1"), node("node2")


@pytest.fixture
def begin(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Callable[..., Drill]]:
    """Return a function that starts a launch of a user. Launches end with the test."""
    begun: list[Drill] = []

    def one(user: str, *arguments: str, **variables: object) -> Drill:
        folder = tmp_path / f"{user}{len(begun)}"
        folder.mkdir()
        begun.append(Drill(folder, variables, user=user))
        return begun[-1].begin(*arguments)

    yield one
    for drill in begun:
        drill.clean_up(nodes)


@pytest.mark.pipeline
def test_launch_runs_as_the_login_user_who_owns_all_its_files(
    begin: Callable[..., Drill], nodes: tuple[Machine, Machine]
) -> None:
    drill = begin("ada").in_step()
    for machine in nodes:
        cgroup = machine.inside("sh", "-c", f"cat /proc/[0-9]*/cgroup | grep -m1 {drill.unit()}").stdout
        uid = machine.inside("id", "--user", "ada").stdout.strip()
        assert f"user@{uid}.service/" in cgroup
        assert machine.inside("test", "-d", drill.state_on(machine)).returncode == 0
        assert drill.unit() not in machine.inside("systemctl", "list-units", "--all", "--no-legend", "--plain").stdout
        drill.open_gate(machine)
    assert drill.end()["status"] == "healthy", drill.verdict()
    plan = json.loads((drill.run / "plan.json").read_text())
    assert (plan["manager"], plan["user"]) == ("user", "ada")
    said = drill.runner.stdout.read()
    assert "User launch by ada, without root. Logs on the nodes: /var/lib/muster/users/ada/launches" in said
    for machine in nodes:
        found = machine.inside("find", "/var/lib/muster/users/ada", "!", "-user", "ada").stdout
        assert found == ""
        assert machine.inside("test", "-d", drill.node_folder + "/logs").returncode == 0
    assert not drill.runs()


def refused(drill: Drill) -> str:
    """Return the summaries of all findings that refused the launch."""
    verdict = drill.end()
    assert verdict["summary"].startswith("not started"), verdict
    assert not drill.runs()
    return " ".join(one["summary"] for one in verdict["findings"] if one["status"] == "fail")


DETACHED = {
    "launch_detached": True,
    "launch_time_limit": 3600,
}  # only its gate ends the launch


def test_second_user_is_refused_or_waits(begin: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    first = begin("ada", **DETACHED)
    assert first.end()["status"] == "unknown"
    for other in ("bob", ""):  # root gets the same result
        assert refused(begin(other)).count(f"launch {first.launch_id} of ada (PID") == len(nodes)
    waiting = begin("bob", launch_wait=True, **DETACHED)
    until(lambda: "waiting: node1: launch" in so_far(waiting), PATIENCE, "bob waits")
    first.open_gate(nodes[0])
    assert waiting.end()["status"] == "unknown"
    assert waiting.runs()
    assert not first.runs()
    waiting.open_gate(nodes[0])
    until(lambda: not waiting.runs(), PATIENCE, "bob's ranks have ended")


def so_far(drill: Drill) -> str:
    return "".join(path.read_text(errors="replace") for path in drill.folder.glob("artifacts/*/stdout"))


def test_administrator_launch_blocks_user_launches(begin: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    first = begin("", **DETACHED)
    assert first.end()["status"] == "unknown"
    assert refused(begin("ada")).count(f"launch {first.launch_id} of muster (PID") == len(nodes)
    first.open_gate(nodes[0])
    until(lambda: not first.runs(), PATIENCE, "the ranks have ended")


def test_only_the_launch_user_can_access_a_user_launch(
    begin: Callable[..., Drill], nodes: tuple[Machine, Machine], play: Play
) -> None:
    drill = begin("ada", **DETACHED)
    assert drill.end()["status"] == "unknown"
    kept = {"cluster_artifacts_dir": str(drill.folder / "kept")}
    for option in ("launch_attach", "launch_stop"):
        done = play("playbooks/launch.yml", extravars={**kept, option: drill.launch_id, "ansible_user": "bob"})
        assert done.rc != 0
        assert f"launch {drill.launch_id} is a user launch of ada, but the login account is bob" in done.stdout
    for machine in nodes:
        for path in (drill.node_folder, drill.state_on(machine), "/var/lib/muster/users/ada"):
            looked = machine.inside("su", "bob", "--command", f"ls {path}", check=False)
            assert "Permission denied" in looked.stderr, path
    # A rank by its local rank.
    inside = int(re.findall(r"^NSpid:.*\t(\d+)$", read_proc(drill.pid(0), "status"), re.MULTILINE)[0])
    killed = nodes[0].inside("su", "bob", "--command", f"kill -9 {inside}", check=False)
    assert "Operation not permitted" in killed.stderr
    assert drill.runs()
    done = play("playbooks/launch.yml", extravars={**kept, **drill.login, "launch_stop": drill.launch_id})
    assert done.rc == 0, done.stdout
    assert not drill.runs()


def test_unit_of_the_same_name_in_another_manager_is_ignored(
    begin: Callable[..., Drill], nodes: tuple[Machine, Machine]
) -> None:
    drill = begin("ada").in_step()
    forged = Drill(drill.folder, user="bob")
    machine = nodes[1]
    run = f"XDG_RUNTIME_DIR=/run/user/$(id -u) systemd-run --user --quiet --unit={drill.unit()} sleep 600"
    machine.inside("su", "bob", "--command", run)
    try:
        drill.open_gate(nodes[0])
        assert drill.end()["status"] == "healthy", "bob's process was reported as left behind or ended"
        assert forged.systemctl(machine, "is-active", drill.unit()).strip() == "active"
    finally:
        forged.systemctl(machine, "stop", drill.unit())


def test_user_outside_the_launch_group_is_refused(begin: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    assert "bob is not in the group muster-launch, but is on node1" in refused_without_group(begin, nodes[1])
    assert "admin is not in the group muster-launch" in refused(begin("", launch_as="self"))


def refused_without_group(begin: Callable[..., Drill], machine: Machine) -> str:
    machine.inside("gpasswd", "--delete", "bob", GROUP)
    try:
        return refused(begin("bob"))
    finally:
        machine.inside("usermod", "--append", "--groups", GROUP, "bob")


def test_launch_ends_with_the_user_manager(begin: Callable[..., Drill], nodes: tuple[Machine, Machine]) -> None:
    drill = begin("bob").in_step()
    agent = drill.agent("node2")
    try:
        drill.fault(
            lambda: nodes[1].inside("systemctl", "stop", f"user@{uid_of(nodes[1], 'bob')}.service"),
            lambda: agent not in processes(drill.launch_id),
        )
        verdict = drill.end()
    finally:
        nodes[1].inside("systemctl", "start", f"user@{uid_of(nodes[1], 'bob')}.service")
    (failed,) = failures(verdict)
    assert (failed["id"], failed["node"]) == ("launch.unit", "node2")
    drill.check_seconds(notice=NOTICED, clean=CLEAN)
    assert not drill.runs()


def uid_of(machine: Machine, name: str) -> str:
    return machine.inside("id", "--user", name).stdout.strip()
