"""Named environments: downloaded once, equal on every node, used by launches, and removed.

The index is a stub that counts bytes. torch is the real torch of the default environment with another version number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from counted import PIP_CONF, TRUST, gateway_of, make_tiny, relabelled_index
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ROOT = "/opt/muster/pytorch/named"
TEAM = f"{ROOT}/team"
RELEASE = "2.99.0"
NODES = ("node1", "node2")
SCRIPT = """
import os, sys
import tiny, torch
import torch.distributed as dist

dist.init_process_group("gloo")
sum_of_ranks = torch.ones(1) * dist.get_rank()
dist.all_reduce(sum_of_ranks)
print("ran in", sys.prefix, torch.__version__, "tiny", tiny.VERSION, "sum", int(sum_of_ranks), flush=True)
dist.destroy_process_group()
"""


class Cluster:
    """Two nodes with a counting index, and the inventory variables of the environments."""

    def __init__(self, play: Play, machines: list[Machine], folder: Path) -> None:
        self.play, self.machines, self.folder = play, machines, folder
        self.index = relabelled_index(folder, machines[0], RELEASE)
        self.weight = sum(path.stat().st_size for path in self.index.folder.iterdir())
        self.declared: dict[str, Any] = {
            "team": {"requirements": str(self.file("team.txt", "tiny>=1,<2\n")), "torch": RELEASE}
        }

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    @property
    def lock(self) -> Path:
        return self.folder / "team.lock.txt"

    def run(self, playbook: str = "playbooks/pytorch.yml", *, check: bool = False, **more: Any) -> Result:
        extravars = {
            "cluster_environments": self.declared,
            "pytorch_index_url": self.index.url,
            "pytorch_find_links": [],
            "pytorch_extra_ca": "",
            "pytorch_lock": str(self.folder / "pytorch.lock.txt"),
            "cluster_launch_nodes": list(NODES),
            **more,
        }
        # Launches select nodes with their own option.
        limit = None if "launch" in playbook else ",".join(NODES)
        return self.play(playbook, extravars=extravars, check=check, limit=limit)

    def environments(self, machine: Machine) -> list[str]:
        return machine.inside("sh", "-c", f"ls {TEAM}/envs 2>/dev/null || true").stdout.split()


@pytest.fixture(scope="module")
def cluster(
    with_pytorch: None, networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    machines = [machine for machine in networked if machine.name in NODES]
    cluster = Cluster(play, machines, tmp_path_factory.mktemp("environments"))
    trust = TRUST.format(gateway_of(machines[0]))
    for machine in machines:
        machine.inside("sh", "-ec", f"rm -rf {ROOT}; {trust}")
    cluster.index.start()
    yield cluster
    cluster.index.stop()
    for machine in machines:
        machine.inside("sh", "-c", f"rm -rf {PIP_CONF} {ROOT}")


def default_of(machine: Machine) -> str:
    return machine.inside("sh", "-c", "readlink /opt/muster/pytorch/current; ls /opt/muster/pytorch/envs").stdout


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Result:
    """Build the environment on both nodes after a check run, which reported the change and changed nothing."""
    before = [default_of(machine) for machine in cluster.machines]
    check = cluster.run(check=True)
    assert check.rc == 0, check.stdout
    assert check.changed
    assert all(cluster.environments(machine) == [] for machine in cluster.machines)
    assert not cluster.lock.exists()
    cluster.index.take_count()
    result = cluster.run()
    assert result.rc == 0, result.stdout
    assert before == [default_of(machine) for machine in cluster.machines], "the default environment changed"
    return result


def test_environment_is_downloaded_once_locked_and_equal_on_all_nodes(cluster: Cluster, built: Result) -> None:
    assert cluster.weight <= cluster.index.take_count() < 1.5 * cluster.weight
    text = cluster.lock.read_text()
    assert f"# asked for: torch=={RELEASE}+cpu, tiny>=1,<2\n" in text
    assert "\ntiny==1.0 --hash=sha256:" in text
    ask = f"{TEAM}/current/bin/python -c 'import torch, tiny; print(torch.__version__, tiny.VERSION)'"
    assert [machine.ssh(ask).stdout.strip() for machine in cluster.machines] == 2 * [f"{RELEASE}+cpu 1.0"]


def test_second_run_changes_nothing(cluster: Cluster, built: Result) -> None:
    make_tiny(cluster.folder / "index", "1.1")  # only a new resolution uses this version
    written = cluster.lock.read_bytes()
    again = cluster.run()
    assert (again.rc, again.changed) == (0, []), again.stdout
    assert cluster.lock.read_bytes() == written


def test_launch_selects_the_environment_by_name(cluster: Cluster, built: Result) -> None:
    script = cluster.file("sum.py", SCRIPT)
    result = cluster.run(
        "playbooks/launch.yml",
        launch_environment="team",
        launch_show_rank=1,
        launch_script_src=str(script),
        cluster_artifacts_dir=str(cluster.folder / "artifacts"),
    )
    assert result.rc == 0, result.stdout
    (name,) = cluster.environments(cluster.machines[1])
    assert f"{RELEASE}+cpu tiny 1.0 sum 1" in result.stdout
    assert f"ran in {TEAM}/" in result.stdout
    assert name.startswith(f"{RELEASE}-cpu-py3.")


def test_invalid_request_is_refused_before_contacting_nodes(cluster: Cluster) -> None:
    wrong = {
        "both": {"requirements": "a.txt", "pyproject": "pyproject.toml"},
        "gone": {"requirements": str(cluster.folder / "gone.txt")},
        "folder": {"requirements": str(cluster.file("folder.txt", "-e .\n"))},
        "Upper": {"requirements": "a.txt"},
    }
    result = cluster.run(cluster_environments={"both": wrong["both"], "Upper": wrong["Upper"]})
    both = "cluster_environments: 'both' has requirements and pyproject, but only one is allowed. Keep one of them."
    assert both in result.stdout
    assert "cluster_environments: 'Upper' is not a valid name." in result.stdout
    assert "no node was contacted" in result.stdout
    result = cluster.run(cluster_environments={"gone": wrong["gone"], "folder": wrong["folder"]})
    assert f"'gone': {cluster.folder}/gone.txt: cannot be read (No such file or directory)" in result.stdout
    assert "folder.txt: line 1: '-e .' is a folder or a URL" in result.stdout
    result = cluster.run("playbooks/launch.yml", launch_environment="taem", launch_script="/srv/x.py")
    assert (
        "launch_environment is 'taem', which is not an environment of this cluster. Use one of default, team."
        in result.stdout
    )
    assert "no node was contacted" in result.stdout


def test_failed_environment_does_not_block_the_update_of_another(cluster: Cluster, built: Result) -> None:
    before = cluster.environments(cluster.machines[0])
    cluster.file("team.txt", "tiny==1.1\n")
    broken = {"requirements": str(cluster.file("broken.txt", "nobody-has-this\n")), "torch": RELEASE}
    result = cluster.run(cluster_environments={"broken": broken, **cluster.declared})
    assert result.rc != 0
    assert "environment broken: " in result.stdout
    assert "pip cannot find nobody-has-this" in result.stdout
    assert "broken.txt" in result.stdout
    ask = f"{TEAM}/current/bin/python -c 'import tiny; print(tiny.VERSION)'"
    for machine in cluster.machines:
        assert machine.ssh(ask).stdout.strip() == "1.1"
        assert set(before) < set(cluster.environments(machine)), "the previous environment must be kept"


@pytest.mark.moment
def test_environment_removed_from_the_inventory_is_deleted_when_unused(cluster: Cluster, built: Result) -> None:
    first, second = cluster.machines
    first.inside("touch", f"{TEAM}/somebodys")
    pid = first.inside("sh", "-ec", f"cd {TEAM}/current/; sleep 600 >/dev/null 2>&1 & echo $!").stdout.strip()
    try:
        result = cluster.run(cluster_environments={})
        assert result.rc == 0, result.stdout
        assert "node1: a process uses the environment team" in result.stdout
        assert cluster.environments(first)
        assert second.inside("test", "-e", ROOT, check=False).returncode, (
            "the parent folder of the last environment must be gone"
        )
    finally:
        first.inside("kill", pid)
    until(lambda: first.inside("test", "-d", f"/proc/{pid}", check=False).returncode, PATIENCE, "the process has ended")
    result = cluster.run(cluster_environments={})
    assert result.rc == 0, result.stdout
    assert first.inside("ls", "-A", TEAM).stdout == "somebodys\n"
    again = cluster.run(cluster_environments={})
    assert (again.rc, again.changed) == (0, []), again.stdout


COMPILE = "import torch; print(torch.compile(lambda x: x.sin() + 1)(torch.zeros(3)).tolist())"


@pytest.mark.slow
def test_torch_compile_finds_the_requested_compiler(with_pytorch: None, play: Play, networked: list[Machine]) -> None:
    machine = next(machine for machine in networked if machine.name == "node3")
    run = "sudo -u muster env TORCHINDUCTOR_CACHE_DIR=/tmp/muster-test /opt/muster/pytorch/current/bin/python"
    command = f"{run} -c '{COMPILE}'"
    assert machine.ssh(command, check=False).returncode != 0, "a compiler is already installed"

    def baseline(*, check: bool = False) -> Result:
        extravars = {"node_baseline_compiler": True}
        return play("playbooks/baseline.yml", extravars=extravars, limit=machine.name, check=check)

    try:
        assert "g++" in baseline(check=True).stdout
        result = baseline()
        assert result.rc == 0, result.stdout
        assert machine.ssh(command).stdout.strip() == "[1.0, 1.0, 1.0]"
        assert baseline().changed == []
    finally:
        machine.inside("apt-get", "purge", "--yes", "--auto-remove", "g++", "python3-dev")
        machine.inside("rm", "-rf", "/tmp/muster-test")
