"""Conda environments: locked and built on the controller, unpacked on nodes without conda."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conda_packages import BUILT_AT, greet, index, make_channel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")

ROOT = "/opt/muster/pytorch/named"
BIO = f"{ROOT}/bio"
NODES = ("node1", "node2")
YML = """
name: not used
channels: [{channel}]
dependencies:
  - greet >={version}
  - python 3.11.*
"""


class Cluster:
    def __init__(self, play: Play, machines: list[Machine], folder: Path) -> None:
        self.play, self.machines, self.folder = play, machines, folder
        self.channel, self.lock = folder / "channel", folder / "bio.lock.txt"
        make_channel(self.channel)
        self.ask("1.0")

    def ask(self, version: str) -> None:
        text = YML.format(channel=self.channel.as_uri(), version=version)
        (self.folder / "environment.yml").write_text(text)

    def run(
        self, playbook: str = "playbooks/pytorch.yml", *, limit: str | None = ",".join(NODES), **more: Any
    ) -> Result:
        check = more.pop("check", False)
        extravars = {
            "cluster_environments": {"bio": {"conda": str(self.folder / "environment.yml")}},
            "pytorch_lock": str(self.folder / "pytorch.lock.txt"),
            "cluster_launch_nodes": list(NODES),
            **more,
        }
        return self.play(playbook, extravars=extravars, limit=limit, check=check)

    def environments(self, machine: Machine) -> list[str]:
        return machine.inside("sh", "-c", f"ls {BIO}/envs 2>/dev/null || true").stdout.split()

    def greeting(self, machine: Machine) -> str:
        return machine.ssh(f"sudo -u muster {BIO}/current/bin/greet").stdout.strip()


@pytest.fixture(scope="module")
def cluster(
    with_pytorch: None, networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    machines = [machine for machine in networked if machine.name in NODES]
    for machine in machines:
        machine.inside("rm", "-rf", ROOT)
    yield Cluster(play, machines, tmp_path_factory.mktemp("conda"))
    for machine in machines:
        machine.inside("rm", "-rf", ROOT)


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Result:
    check = cluster.run(check=True)
    assert check.rc == 0, check.stdout
    assert check.changed
    assert not cluster.lock.exists()
    assert all(cluster.environments(machine) == [] for machine in cluster.machines)
    result = cluster.run()
    assert result.rc == 0, result.stdout
    return result


def test_environment_is_locked_with_hashes_and_equal_on_all_nodes(cluster: Cluster, built: Result) -> None:
    lines = cluster.lock.read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert [line.partition(" sha256:")[0].rpartition("/")[2] for line in packages] == [
        "greet-1.0-0.tar.bz2",
        "python-3.11.2-0.tar.bz2",
        "where-1.0-0.tar.bz2",
    ]
    (name,) = cluster.environments(cluster.machines[0])
    assert name.startswith("3.11.2-conda-py3.11-")
    for machine in cluster.machines:
        assert cluster.environments(machine) == [name]
        assert cluster.greeting(machine) == f"greetings 1.0 from {BIO}/envs/{name}"
        assert machine.inside("grep", "-rlF", BUILT_AT, f"{BIO}/envs/{name}/bin", check=False).stdout == ""
        binary = machine.inside("sh", "-c", f"tr '\\0' '|' <{BIO}/current/share/where.bin").stdout
        assert binary.startswith(f"|{BIO}/envs/{name}/lib|")
        assert len(binary) == len(f"|{BUILT_AT}/lib|rest"), "a binary file must keep its size"
        assert machine.inside("sh", "-c", f"ls -A {BIO}").stdout.split() == ["current", "envs"]
        assert machine.inside("find", BIO, "!", "-user", "root").stdout == ""


def test_second_run_changes_nothing_and_damage_is_repaired(cluster: Cluster, built: Result) -> None:
    again = cluster.run()
    assert (again.rc, again.changed) == (0, []), again.stdout
    first = cluster.machines[0]
    first.inside("sh", "-c", f"rm {BIO}/current/lib/python3.11/site-packages/greet.py")
    verified = cluster.run(pytorch_mode="verify")
    assert verified.rc != 0
    assert "node1: environment bio: greet: lib/python3.11/site-packages/greet.py is missing." in verified.stdout
    assert verified.stats["failures"] == {"node1": 1}
    result = cluster.run()
    assert result.rc == 0, result.stdout
    assert cluster.greeting(first).startswith("greetings 1.0")


def test_launch_selects_the_environment_by_name(cluster: Cluster, built: Result) -> None:
    result = cluster.run(
        "playbooks/launch.yml",
        launch_environment="bio",
        launch_command=["greet"],
        launch_show_rank=0,
        cluster_artifacts_dir=str(cluster.folder / "artifacts"),
    )
    assert f"greetings 1.0 from {BIO}/envs/" in result.stdout


@pytest.mark.slow
def test_changed_request_builds_another_environment_from_the_current_channel(cluster: Cluster, built: Result) -> None:
    greet(cluster.channel, "2.0")
    index(cluster.channel)
    same = cluster.run()
    assert (same.rc, same.changed) == (0, []), "the lock fixes the versions"
    before = set(cluster.environments(cluster.machines[1]))
    cluster.ask("2.0")
    result = cluster.run()
    assert result.rc == 0, result.stdout
    assert "greet 1.0_0 -> 2.0_0" in result.stdout
    for machine in cluster.machines:
        assert cluster.greeting(machine).startswith("greetings 2.0")
    assert before < set(cluster.environments(cluster.machines[1]))


def test_missing_package_is_reported_and_nothing_changes(cluster: Cluster, built: Result) -> None:
    text = cluster.lock.read_text()
    machine = cluster.machines[1]
    name = machine.inside("readlink", f"{BIO}/current").stdout
    cluster.ask("3.0")
    result = cluster.run()
    assert result.rc != 0
    assert "environment bio: no solution for linux-" in result.stdout
    assert machine.inside("readlink", f"{BIO}/current").stdout == name
    assert cluster.lock.read_text() == text


def test_environment_is_deleted_when_its_name_is_removed(cluster: Cluster, built: Result) -> None:
    result = cluster.run(cluster_environments={})
    assert result.rc == 0, result.stdout
    for machine in cluster.machines:
        assert machine.inside("test", "-e", ROOT, check=False).returncode, (
            "the parent folder of the last environment must be gone"
        )
