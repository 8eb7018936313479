"""Another PyTorch on nodes that are in use: one first, then the others; and back again.

The wheels are stand-ins. Where launches try the nodes, they are the real PyTorch under other versions.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import SANDBOX_KNOWS, at, make_lab
from machines import run_playbook
from package_index import PackageIndex
from standin_wheels import broken_torch, relabelled_torch, torch_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Result

ROOT = "/opt/muster-test-upgrade"
BOOK = "playbooks/upgrade.yml"
PLAN = "Decide who changes, and in which order"
PIP_CONF = "~/.config/pip/pip.conf"


@dataclass
class Cluster:
    """Three nodes with stand-in wheels, and an inventory of their own."""

    machines: list[Machine]
    index: PackageIndex
    inventory: Path
    folder: Path
    runs: int = 0

    def play(self, playbook: str = BOOK, *, check: bool = False, **extravars: Any) -> Result:
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        return run_playbook(folder, playbook, inventory=self.inventory, extravars=extravars, check=check)

    def versions(self) -> dict[str, str]:
        """The release that each node's link leads to, seen from outside."""
        return {machine.name: link(machine).partition("-")[0] for machine in self.machines}

    def start_with(self, release: str) -> None:
        """All nodes have this release and nothing else."""
        for machine in self.machines:
            machine.inside("rm", "-rf", ROOT)
        result = self.play("playbooks/pytorch.yml", cluster_torch_version=release)
        assert result.rc == 0, result.stdout
        assert set(self.versions().values()) == {release}


def link(machine: Machine) -> str:
    return machine.inside("sh", "-c", f"basename $(readlink {ROOT}/current)").stdout.strip()


@pytest.fixture(scope="module")
def cluster(networked: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("upgrade")
    wheels = folder / "index"
    wheels.mkdir()
    gateway = networked[0].address.rpartition(".")[0] + ".1"
    index = PackageIndex(wheels, gateway)
    index.start()
    inventory = make_lab(
        folder / "lab",
        at(*networked),
        cluster_torch_version="2.0.0",
        cluster_artifacts_dir=str(folder / "artifacts"),
        pytorch_root=ROOT,
        pytorch_index_url=index.url,
        pytorch_packages=[],
        pytorch_reviewed_lock=False,
        ddp_smoke_stall_timeout=300,
    )
    shutil.copy(SANDBOX_KNOWS, inventory / "known_hosts")
    for release in ("2.0.0+cpu", "2.1.0+cpu"):
        torch_wheel(wheels, release, requires="")
    trust = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {gateway}\\n' >{PIP_CONF}"
    for machine in networked:
        machine.inside("sh", "-ec", trust)
    cluster = Cluster(networked, index, inventory, folder)
    cluster.start_with("2.0.0")
    yield cluster
    index.stop()
    for machine in networked:
        machine.inside("sh", "-c", f"rm -rf {ROOT} {PIP_CONF}")


def test_a_check_shows_what_would_change_and_changes_nothing(cluster: Cluster) -> None:
    result = cluster.play(torch_version="2.1.0", check=True)
    assert result.rc == 0, result.stdout
    shown = result.results(PLAN)["node1"]["msg"].splitlines()
    assert shown[0] == "changes  node1, node2, node3: PyTorch 2.0.0 -> 2.1.0"
    assert shown[2] == ("order    node3 first, by itself, then node1, then node2; a batch that is not good ends it")
    assert set(cluster.versions().values()) == {"2.0.0"}


def test_it_changes_one_after_the_other_and_the_inventory_in_the_end(cluster: Cluster) -> None:
    result = cluster.play(torch_version="2.1.0", upgrade_smoke="none")
    assert result.rc == 0, result.stdout
    assert set(cluster.versions().values()) == {"2.1.0"}
