"""Reboots for a new driver and their order, on simulated GPU nodes that really reboot.

The tests depend on their order. With --nodes=node1,node2 the first test starts with the nodes in their current state,
as left by molecule.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_cluster import boot, loaded, versions
from package_list import read_packages, renamed
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from gpu_cluster import GpuCluster
    from machines import Machine

# The installed driver, and an older one of its branch.
OLDER = {"580.178.04": "580.159.04", "595.91.07": "595.71.05"}
HOLDER = "standin-training"
MACHINE_ID = "/etc/machine-id"


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--driver"))


@pytest.fixture(scope="module")
def older(driver: str) -> dict[str, str]:
    """Return the request for an older driver of the branch, which needs a reboot of both nodes."""
    return {"gpu_stack_driver": OLDER[driver]}


@pytest.fixture(scope="module")
def same(driver: str) -> dict[str, str]:
    """Return the request for the installed branch."""
    return {"gpu_stack_driver": driver.partition(".")[0]}


def boots(cluster: GpuCluster) -> list[str]:
    return [boot(node) for node in cluster.nodes]


def begun(machine: Machine) -> float:
    """Return the start time of the newest boot."""
    return float(machine.inside("stat", "--format=%.Y", "/run/boot_id").stdout)


def booted(machine: Machine) -> float:
    """Return the time at which the newest boot finished."""
    done = 'date +%s --date="$(systemctl show --value --property=FinishTimestamp)"'
    return float(machine.inside("sh", "-c", done).stdout)


def hold_a_gpu(machine: Machine) -> str:
    """Start a process of the administrator that keeps a GPU open. Return its pid."""
    held = "exec sleep infinity </dev/nvidia0"
    machine.inside("systemd-run", f"--unit={HOLDER}", "--uid=admin", "sh", "-c", held)
    pid = machine.inside("systemctl", "show", "--value", "--property=MainPID", HOLDER).stdout.strip()
    look = ["test", f"/proc/{pid}/fd/0", "-ef", "/dev/nvidia0"]
    until(lambda: machine.inside(*look, check=False).returncode == 0, PATIENCE, "the GPU is held")
    return pid


def test_unchanged_stack_needs_no_reboot(gpu_cluster: GpuCluster, same: dict[str, str]) -> None:
    before = boots(gpu_cluster)
    result = gpu_cluster.play(extravars=same)
    assert result.rc == 0, result.stdout
    assert result.changed == []
    assert boots(gpu_cluster) == before


def test_nodes_with_newer_kernels_reboot_in_turn(gpu_cluster: GpuCluster, same: dict[str, str], driver: str) -> None:
    kernel = renamed(read_packages(), "6.8.0-90", "6.8.0-94")
    gpu_cluster.served.publish([*read_packages(), *kernel])
    before = boots(gpu_cluster)
    for node in gpu_cluster.nodes:
        upgrade = "apt-get -qq update && apt-get -qq -y install linux-image-generic linux-headers-generic"
        node.inside("sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {upgrade}")
    result = gpu_cluster.play(extravars=same)
    assert result.rc == 0, result.stdout
    first, second = gpu_cluster.nodes
    assert not set(boots(gpu_cluster)) & set(before)
    # The second node reboots only after the first node has finished booting.
    assert begun(second) >= booted(first)
    for node in gpu_cluster.nodes:
        assert node.inside("cat", "/proc/sys/kernel/osrelease").stdout.strip() == "6.8.0-94-generic"
        assert loaded(node) == driver


def test_kernel_without_headers_is_not_booted(gpu_cluster: GpuCluster, same: dict[str, str], driver: str) -> None:
    """dkms builds nothing for such a kernel, so that the driver would be gone after a reboot."""
    newest = "6.8.0-99-generic"
    newer = renamed(read_packages(), "6.8.0-90", "6.8.0-94")
    image = [one for one in renamed(read_packages(), "6.8.0-90", "6.8.0-99") if one["name"] == f"linux-image-{newest}"]
    gpu_cluster.served.publish([*read_packages(), *newer, *image])
    _, node = gpu_cluster.nodes
    install = f"apt-get -qq update && apt-get -qq -y install linux-image-{newest}"
    node.inside("sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {install}")
    assert not node.inside("modinfo", "-k", newest, "nvidia", check=False).stdout
    before = boots(gpu_cluster)
    refused = gpu_cluster.play(extravars=same)
    assert refused.rc != 0
    assert f"the kernel {newest} has no driver module, but driver {driver} is installed" in refused.stdout
    assert boots(gpu_cluster) == before
    # Nothing has to reboot the node to show the problem.
    why = f"starts the kernel {newest}, and it has no module of driver {driver} and no headers to build one"
    try:
        inspected = gpu_cluster.play("playbooks/inspect.yml").results("Evaluate the inspection")["localhost"]["msg"]
        assert f"the next boot probably {why}" in " ".join(inspected.split()), inspected
        assert f"kernel {newest}" in gpu_cluster.play("playbooks/status.yml").stdout
    finally:
        node.inside("apt-get", "-qq", "-y", "purge", f"linux-image-{newest}")
    result = gpu_cluster.play(extravars=same)
    assert result.rc == 0, result.stdout
    assert boots(gpu_cluster) == before
    assert loaded(node) == driver


def test_failed_reboot_stops_the_remaining_reboots(gpu_cluster: GpuCluster, older: dict[str, str], driver: str) -> None:
    first, second = gpu_cluster.nodes
    before = boots(gpu_cluster)
    first.inside("touch", "/etc/standin-gpu-broken")
    result = gpu_cluster.play(extravars=older)
    first.inside("rm", "/etc/standin-gpu-broken")
    assert result.rc != 0
    assert boot(first) != before[0]
    assert boot(second) == before[1]
    assert "node2 is not rebooted: node1 was rebooted first" in result.stdout
    assert "the kernel has not loaded the driver" in result.stdout
    # The node that did not get its turn runs as before.
    assert loaded(second) == driver


def test_controller_and_node_with_a_busy_gpu_are_not_rebooted(gpu_cluster: GpuCluster, older: dict[str, str]) -> None:
    first, second = gpu_cluster.nodes
    pid = hold_a_gpu(second)
    own = first.inside("cat", MACHINE_ID).stdout
    first.inside("sh", "-c", f"echo {Path(MACHINE_ID).read_text().strip()} >{MACHINE_ID}")
    before = boots(gpu_cluster)
    there = versions(second)
    result = gpu_cluster.play(extravars=older)
    first.inside("sh", "-c", f"echo {own.strip()} >{MACHINE_ID}")
    assert result.rc != 0
    assert boots(gpu_cluster) == before
    assert versions(second) == there
    assert f"(pid {pid}, user admin" in result.stdout
    assert "sudo systemctl reboot" in result.stdout


def test_next_run_completes_the_postponed_reboots(gpu_cluster: GpuCluster, older: dict[str, str]) -> None:
    for node in gpu_cluster.nodes:
        node.inside("systemctl", "stop", HOLDER, check=False)
    result = gpu_cluster.play(extravars=older)
    assert result.rc == 0, result.stdout
    assert [loaded(node) for node in gpu_cluster.nodes] == [older["gpu_stack_driver"]] * 2
