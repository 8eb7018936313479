"""A driver upgrade of nodes in use, one node first; the rollback; and a newer kernel beside a driver.

GPU nodes and repositories are simulated (tests/standins). apt, dpkg and reboots are real. Without GPUs, no launch runs.
The tests depend on their order.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpu_cluster import FOLDER, boot, loaded, versions
from kernels import HEADERS, NEW, OLD, PARTS, make_pocket, put_pocket
from lab import at, make_lab
from machines import run_playbook
from paths import BIN, ENVIRONMENT, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_cluster import GpuCluster
    from machines import Machine, Result

pytestmark = pytest.mark.slow
BOOK = "playbooks/upgrade.yml"
PLAN, END = "Plan the order of the upgrade", "Write the new version to the inventory"
BEFORE, BRANCH, AFTER = "580.178.04", "595", "595.91.07"
KEPT = "/var/lib/muster/driver_before"
BROKEN = "/etc/standin-gpu-broken"


@dataclass
class Lab:
    """Two simulated GPU nodes and their own inventory."""

    nodes: list[Machine]
    inventory: Path
    folder: Path
    runs: int = 0

    def play(self, *, check: bool = False, **extravars: Any) -> Result:
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        return run_playbook(folder, BOOK, inventory=self.inventory, extravars=extravars, check=check)

    def loaded(self) -> list[str]:
        return [loaded(node) for node in self.nodes]

    def run_command(self, command: str) -> None:
        """Run a command that a playbook printed, after adding the option for the inventory as a user does."""
        program, *words = shlex.split(command)
        argv = [str(BIN / program), "-i", str(self.inventory), *words]
        environment = {**os.environ, **ENVIRONMENT}
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def message_of(result: Result, task: str) -> str:
    return str(next(done["msg"] for done in result.results(task).values()))


def kept(node: Machine) -> list[str]:
    return node.inside("sh", "-c", f"ls {KEPT} 2>/dev/null; true").stdout.split()


@pytest.fixture(scope="module")
def lab(gpu_cluster: GpuCluster, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("drivers")
    served = gpu_cluster.served
    key = str(served.repositories.key.public)
    inventory = make_lab(
        folder / "lab",
        at(*gpu_cluster.nodes),
        ansible_ssh_private_key_file=str(FOLDER / "id_ed25519"),
        cluster_gpus=8,
        gpu_stack_driver=BEFORE.partition(".")[0],
        cluster_mirror="custom",
        cluster_mirror_urls={
            "nvidia": f"{served.url}/compute/cuda/repos/{{distro}}/{{arch}}/",
            "container_toolkit": f"{served.url}/libnvidia-container/stable/deb/{{debarch}}/",
        },
        gpu_stack_repository_keys={"nvidia": key, "container_toolkit": key},
        cluster_artifacts_dir=str(folder / "artifacts"),
        upgrade_smoke="none",
        health_gate="warn",
    )
    shutil.copy(FOLDER / "known_hosts", inventory / "known_hosts")
    return Lab(gpu_cluster.nodes, inventory, folder)


def test_check_mode_shows_the_driver_and_changes_nothing(lab: Lab) -> None:
    before = [boot(node) for node in lab.nodes]
    result = lab.play(driver=BRANCH, check=True)
    assert result.rc == 0, result.stdout
    shown = message_of(result, PLAN).splitlines()
    assert shown[0] == f"changes  node1, node2: driver {BEFORE} -> {BRANCH} from nvidia"
    assert shown[2] == "order    node2 first, alone, then node1; a failed batch stops the upgrade"
    assert [boot(node) for node in lab.nodes] == before
    assert lab.loaded() == [BEFORE] * 2


def test_upgrade_ends_if_the_driver_does_not_load_on_the_first_node(lab: Lab) -> None:
    other, first = lab.nodes
    there = versions(first)
    first.inside("touch", BROKEN)
    result = lab.play(driver=BRANCH)
    first.inside("rm", BROKEN)
    assert result.rc != 0
    assert (loaded(other), versions(other)) == (BEFORE, there), result.stdout
    assert versions(first)["libnvidia-compute"].startswith(AFTER), result.stdout
    ended = message_of(result, END)
    assert "The upgrade stops: node1 and the inventory are unchanged." in ended
    owner = first.inside("stat", "--format=%U %a", KEPT).stdout.split()
    assert owner == ["root", "755"]
    assert len(kept(first)) == len(there)
    commands = re.findall(r"^  (ansible node2 .*)$", ended, re.MULTILINE)
    before = boot(first)
    assert len(commands) == 2
    for command in commands:
        lab.run_command(command)
    until(lambda: boot(first) != before and loaded(first) == BEFORE, 150, "reboot with the previous driver")
    until(first.ssh_answers, PATIENCE, "the node accepts logins")
    assert versions(first) == there


def test_all_nodes_get_the_driver_and_the_inventory_is_updated(lab: Lab) -> None:
    result = lab.play(driver=BRANCH)
    assert result.rc == 0, result.stdout
    assert lab.loaded() == [AFTER] * 2
    assert message_of(result, END) == f"2 nodes have the driver {BRANCH}."
    listed = yaml.safe_load((lab.inventory / "hosts.yml").read_text())["gpu_nodes"]["vars"]
    assert listed["gpu_stack_driver"] == BRANCH
    assert [kept(node) for node in lab.nodes] == [[], []]


def test_second_run_changes_nothing(lab: Lab) -> None:
    before = [boot(node) for node in lab.nodes]
    result = lab.play(driver=BRANCH)
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert [boot(node) for node in lab.nodes] == before


def test_kernel_without_headers_for_the_module_is_refused(lab: Lab) -> None:
    before = [boot(node) for node in lab.nodes]
    for node in lab.nodes:
        put_pocket(node.container, make_pocket(lab.folder / f"no-headers-{node.name}", newer=True, parts=PARTS))
    result = lab.play(kernel="security")
    assert result.rc != 0
    for node in lab.nodes:
        assert f"{node.name}: the driver requires linux-headers-{NEW} for the new kernel" in " ".join(
            result.stdout.split()
        )
    assert [boot(node) for node in lab.nodes] == before


def test_kernel_upgrade_builds_the_driver_module(lab: Lab) -> None:
    for node in lab.nodes:
        pocket = make_pocket(lab.folder / f"with-headers-{node.name}", newer=True, parts=(*PARTS, *HEADERS))
        put_pocket(node.container, pocket)
    result = lab.play(kernel="security")
    assert result.rc == 0, result.stdout
    for node in lab.nodes:
        assert node.inside("cat", "/proc/sys/kernel/osrelease").stdout.strip() == NEW
        assert node.inside("test", "-e", f"/boot/vmlinuz-{OLD}", check=False).returncode == 0
    assert lab.loaded() == [AFTER] * 2
