"""Kernel security updates of nodes in use: one node first, then the others, each with a reboot, and the rollback.

Kernels, their security pocket and GRUB are stubs (tests/standins/kernels.py). apt, dpkg, reboots and the following
launches are real. The tests depend on their order.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kernels import NEW, OLD, PINNED, make_pocket, put_old_kernel, put_pocket, remove_all
from killable import Run
from lab import SANDBOX_KNOWS, at, make_lab
from machines import NODES, run_playbook
from paths import BIN, ENVIRONMENT, ROOT, SANDBOX
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Result

pytestmark = pytest.mark.slow
ENTRY = f"gnulinux-advanced-standin>gnulinux-{OLD}-advanced-standin"  # of the GRUB menu
BOOK = "playbooks/upgrade.yml"
PLAN, END = "Plan the order of the upgrade", "Write the new version to the inventory"
WORK = "standin-work"
META = "linux-image-generic"
MOMENTS = ("Inspect the kernels", "Install the kernel fixes", "[upgrade : Reboot]")


@dataclass
class Cluster:
    """Three nodes that report the older kernel, and their own inventory."""

    machines: dict[str, Machine]
    inventory: Path
    folder: Path
    runs: int = 0

    def play(self, *, check: bool = False, **extravars: Any) -> Result:
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        given = {"kernel": "security", **extravars}
        return run_playbook(folder, BOOK, inventory=self.inventory, extravars=given, check=check)

    def kernels(self) -> dict[str, str]:
        return {name: running(machine) for name, machine in self.machines.items()}

    def boots(self) -> dict[str, str]:
        return {name: boot(machine) for name, machine in self.machines.items()}

    def final_message(self, result: Result) -> str:
        (said,) = {done["msg"] for done in result.results(END).values()}
        return str(said)

    def run_command(self, command: str) -> None:
        """Run a command that a playbook printed, after adding the option for the inventory as a user does."""
        program, *words = shlex.split(command)
        argv = [str(BIN / program), "-i", str(self.inventory), *words]
        environment = {**os.environ, **ENVIRONMENT}
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def has_come_to(run: Run, task: str) -> bool:
    return task in run.shown or run.process.poll() is not None


def running(machine: Machine) -> str:
    return machine.inside("cat", "/proc/sys/kernel/osrelease", check=False).stdout.strip()


def boot(machine: Machine) -> str:
    return machine.inside("cat", "/proc/sys/kernel/random/boot_id", check=False).stdout.strip()


def restart(machine: Machine) -> None:
    machine.podman("restart")
    until(machine.ssh_answers, PATIENCE, f"{machine.name} is back")


@pytest.fixture(scope="module")
def cluster(three_nodes: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("kernels")
    before, after = make_pocket(folder / "before", newer=False), make_pocket(folder / "after", newer=True)
    inventory = make_lab(
        folder / "lab",
        at(*three_nodes.values()),
        cluster_artifacts_dir=str(folder / "artifacts"),
        cluster_nproc_per_node=1,
        pytorch_lock=f"{SANDBOX}/pytorch.lock.txt",
    )
    shutil.copy(SANDBOX_KNOWS, inventory / "known_hosts")
    for machine in three_nodes.values():
        put_old_kernel(machine.container, before)
    cluster = Cluster(three_nodes, inventory, folder)
    assert cluster.kernels() == dict.fromkeys(NODES, OLD)
    for machine in three_nodes.values():
        put_pocket(machine.container, after)
    yield cluster
    for machine in three_nodes.values():
        remove_all(machine.container)
        restart(machine)


def test_check_mode_shows_the_packages_and_changes_nothing(cluster: Cluster) -> None:
    before = cluster.boots()
    result = cluster.play(check=True)
    assert result.rc == 0, result.stdout
    shown = result.results(PLAN)["node1"]["msg"].splitlines()
    assert shown[0] == f"changes  node1, node2, node3: kernel {OLD} -> {NEW}"
    assert shown[2] == "order    node3 first, alone, then node1, then node2; a failed batch stops the upgrade"
    brought = f"linux-image-{NEW} 6.8.0-94.91, {META} 6.8.0-94.91"
    assert f"packages node1, node2, node3: {brought}" in shown, shown
    assert f"back     node1, node2, node3: {OLD} remains installed" in shown
    assert cluster.boots() == before


def test_held_package_is_kept(cluster: Cluster) -> None:
    before = cluster.boots()
    second = cluster.machines["node2"]
    second.inside("apt-mark", "hold", META)
    result = cluster.play()
    second.inside("apt-mark", "unhold", META)
    assert result.rc != 0
    assert f"node2: {META} on hold" in result.stdout
    assert f"sudo apt-mark unhold {META}" in result.stdout
    assert cluster.boots() == before


def test_upgrade_ends_if_the_first_node_boots_the_old_kernel(cluster: Cluster) -> None:
    before = cluster.boots()
    first = cluster.machines["node3"]
    first.inside("sh", "-c", f"echo gnulinux-{OLD}-advanced-standin >{PINNED}")
    result = cluster.play()
    first.inside("rm", PINNED)
    after = cluster.boots()
    assert result.rc != 0
    assert after["node3"] != before["node3"], result.stdout
    assert {name: after[name] for name in ("node1", "node2")} == {name: before[name] for name in ("node1", "node2")}
    said = cluster.final_message(result)
    assert said.startswith(f"node3: the node was rebooted, but runs {OLD} instead of {NEW}: "), said
    assert "The upgrade stops: node1, node2 are unchanged." in said
    (choose,) = re.findall(r"^  (ansible node3 .*grub-reboot .*)$", said, re.MULTILINE)
    assert shlex.split(shlex.split(choose)[-1]) == ["grub-reboot", ENTRY]
    assert said.endswith(f"To try again: ansible-playbook {BOOK} -e kernel=security.")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_run_locks_nobody_out(cluster: Cluster, tmp_path: Path, moment: str) -> None:
    """Only the first node has reached this step, and the next run starts in that state."""
    others = {name: boot(cluster.machines[name]) for name in ("node1", "node2")}
    run = Run(tmp_path, BOOK, "-e", "kernel=security", "-e", "upgrade_smoke=none", inventory=cluster.inventory)
    until(partial(has_come_to, run, moment), PATIENCE, moment)
    run.kill()
    assert moment in run.shown, run.shown
    for machine in cluster.machines.values():
        until(machine.ssh_answers, PATIENCE, f"{machine.name} accepts logins")
    assert {name: boot(cluster.machines[name]) for name in others} == others


def test_busy_node_is_not_rebooted(cluster: Cluster) -> None:
    """node3 already has the packages and only needs a reboot. Another process computes on node1."""
    busy = cluster.machines["node1"]
    busy.inside("systemd-run", f"--unit={WORK}", "--uid=admin", "sleep", "infinity")
    pid = busy.inside("systemctl", "show", "--value", "--property=MainPID", WORK).stdout.strip()
    before = boot(busy)
    result = cluster.play()
    still = busy.inside("systemctl", "is-active", WORK, check=False).stdout.strip()
    busy.inside("systemctl", "stop", WORK)
    assert (still, boot(busy)) == ("active", before)
    assert result.rc != 0
    assert cluster.kernels() == {"node1": OLD, "node2": NEW, "node3": NEW}, result.stdout
    said = cluster.final_message(result)
    assert f"node1 is postponed: PID {pid} of admin (/usr/bin/sleep infinity) would be stopped by the reboot." in said
    tried = [done["plan"]["nodes"] for done in result.results("Launch the acceptance test").values()]
    assert tried
    assert all({one["node"] for one in nodes} <= {"node2", "node3"} for nodes in tried)


def test_same_command_completes_the_upgrade(cluster: Cluster) -> None:
    result = cluster.play(upgrade_smoke="none")
    assert result.rc == 0, result.stdout
    assert cluster.kernels() == dict.fromkeys(NODES, NEW)
    assert cluster.final_message(result) == "3 nodes have the newest security fixes of their kernel."
    for machine in cluster.machines.values():
        there = machine.inside("sh", "-c", "ls /boot/vmlinuz-*; apt-mark showhold").stdout.split()
        assert there == [f"/boot/vmlinuz-{OLD}", f"/boot/vmlinuz-{NEW}"]


def test_second_run_changes_nothing(cluster: Cluster) -> None:
    before = cluster.boots()
    result = cluster.play()
    assert (result.rc, result.changed) == (0, []), result.stdout
    assert cluster.boots() == before


def test_printed_commands_boot_the_older_kernel_once(cluster: Cluster) -> None:
    node = cluster.machines["node3"]
    before = boot(node)
    for words in (shlex.join(["grub-reboot", ENTRY]), "shutdown -r +1"):
        cluster.run_command(f"ansible node3 --become -m ansible.builtin.command -a {shlex.quote(words)}")
    until(lambda: running(node) == OLD and boot(node) != before, 120, "the node has rebooted")
    until(node.ssh_answers, PATIENCE, "the node accepts logins")
    restart(node)
    assert running(node) == NEW
