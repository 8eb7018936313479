"""The GPU stack of simulated GPU nodes as reported by apt, dpkg, modprobe settings and systemd.

With --nodes=node1,node2 the nodes are tested in their current state: molecule uses this file to check nodes that it has
converged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_cluster import loaded, versions

if TYPE_CHECKING:
    from gpu_cluster import GpuCluster
    from machines import Machine


pytestmark = pytest.mark.pipeline_gpu


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--driver"))


def of_unit(machine: Machine, unit: str, name: str) -> str:
    return machine.inside("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()


def test_all_driver_packages_have_one_version(gpu_cluster: GpuCluster, driver: str) -> None:
    for node in gpu_cluster.nodes:
        there = {name: version for name, version in versions(node).items() if "pinning" not in name}
        assert {"nvidia-persistenced", "nvidia-fabricmanager", "libnvidia-nscq"} <= set(there)
        assert {version.partition("-")[0] for version in there.values()} == {driver}


def test_dpkg_audit_is_clean(gpu_cluster: GpuCluster) -> None:
    for node in gpu_cluster.nodes:
        assert node.inside("dpkg", "--audit").stdout == "", node.name


def test_loaded_driver_matches_the_installed_driver(gpu_cluster: GpuCluster, driver: str) -> None:
    for node in gpu_cluster.nodes:
        assert loaded(node) == driver
        kernel = node.inside("cat", "/proc/sys/kernel/osrelease").stdout.strip()
        assert node.inside("modinfo", "-k", kernel, "-F", "version", "nvidia").stdout.strip() == driver


def test_nvidia_smi_lists_all_gpus_with_persistence_mode(gpu_cluster: GpuCluster, driver: str) -> None:
    query = "--query-gpu=driver_version,persistence_mode"
    for node in gpu_cluster.nodes:
        lines = node.inside("nvidia-smi", query, "--format=csv,noheader").stdout.splitlines()
        assert lines == [f"{driver}, Enabled"] * 8


def test_daemons_run_and_are_enabled(gpu_cluster: GpuCluster) -> None:
    for node in gpu_cluster.nodes:
        for unit in ("nvidia-persistenced.service", "nvidia-fabricmanager.service"):
            assert of_unit(node, unit, "ActiveState") == "active", unit
            assert of_unit(node, unit, "UnitFileState") == "enabled", unit
        assert of_unit(node, "nvidia-persistenced.service", "StopWhenUnneeded") == "no"
        assert "--no-persistence-mode" not in of_unit(node, "nvidia-persistenced.service", "ExecStart")


def test_apt_is_pinned_to_the_driver_branch(gpu_cluster: GpuCluster, driver: str) -> None:
    branch = driver.partition(".")[0]
    for node in gpu_cluster.nodes:
        pins = [name for name in versions(node) if name.startswith("nvidia-driver-pinning")]
        assert pins in ([f"nvidia-driver-pinning-{branch}"], [f"nvidia-driver-pinning-{driver}"])
        for name in ("nvidia-fabricmanager", "nvidia-persistenced", "libnvidia-nscq"):
            policy = node.inside("apt-cache", "policy", name).stdout
            assert f"Candidate: {driver}-" in policy, policy
        # A hold would block the next branch.
        assert node.inside("apt-mark", "showhold").stdout == ""


def test_repositories_are_signed_by_their_own_key(gpu_cluster: GpuCluster) -> None:
    for node in gpu_cluster.nodes:
        text = node.inside("sh", "-c", "cat /etc/apt/sources.list.d/muster-*").stdout
        assert "/etc/apt/keyrings/muster-nvidia.asc" in text
        assert "trusted" not in text.lower()
        # No key is trusted for all sources.
        assert node.inside("sh", "-c", "ls /etc/apt/trusted.gpg 2>/dev/null; true").stdout == ""


def test_every_initramfs_blacklists_nouveau(gpu_cluster: GpuCluster) -> None:
    for node in gpu_cluster.nodes:
        for image in node.inside("sh", "-c", "ls /boot/initrd.img-*").stdout.split():
            files = node.inside("tar", "-xOf", image).stdout
            assert "blacklist nouveau" in files, f"{node.name}: {image}"
