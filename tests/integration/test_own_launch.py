"""The own launch of somebody without sudo: as that user, in that user's own manager, on real nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from drill import Drill
from launch_users import make_launch_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

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
    """Begin the launch of somebody; what is left of it when the test has failed is ended."""
    begun: list[Drill] = []

    def one(user: str, *arguments: str, **variables: object) -> Drill:
        folder = tmp_path / f"{user}{len(begun)}"
        folder.mkdir()
        begun.append(Drill(folder, variables, user=user))
        return begun[-1].begin(*arguments)

    yield one
    for drill in begun:
        for machine in nodes:
            if drill.run.is_dir() and drill.runs():
                drill.systemctl(machine, "stop", drill.unit(), check=False)
            machine.inside("rm", "--force", drill.gate)


def test_it_runs_as_whoever_logs_in_and_leaves_files_of_that_user_alone(
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
    assert "It is ada's own launch, without root: logs on the nodes go to /var/lib/muster/users/ada/launches" in said
    for machine in nodes:
        found = machine.inside("find", "/var/lib/muster/users/ada", "!", "-user", "ada").stdout
        assert found == ""
        assert machine.inside("test", "-d", drill.node_folder + "/logs").returncode == 0
    assert not drill.runs()
