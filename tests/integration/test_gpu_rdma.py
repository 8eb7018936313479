"""RDMA packages and settings on simulated GPU nodes. Files simulate adapters and kernel modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpu_node import inside, put
from package_list import read_packages, renamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_cluster import GpuCluster
    from machines import Machine, Result

STANDINS = Path(__file__).parents[1] / "standins"
INFINIBAND = {"layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE", "driver": "mlx5_core"}
ADAPTERS: dict[str, Any] = {
    "mlx5_0": {**INFINIBAND, "slot": "0000:1a:00.1", "pkeys": ["0x7fff", "0x8012"]},
    "mlx5_1": {**INFINIBAND, "slot": "0000:1b:00.1", "pkeys": ["0x7fff", "0x8012"]},
    # An adapter for storage, which is common.
    "mlx5_bond_0": {
        **INFINIBAND,
        "slot": "0000:1c:00.1",
        "layer": "Ethernet",
        "rate": "25 Gb/sec (1X EDR)",
        "pkeys": ["0xffff"],
    },
}
DISTRIBUTION = {
    *("rdma-core", "libibverbs1", "ibverbs-providers", "librdmacm1", "ibverbs-utils", "infiniband-diags", "perftest"),
}
CONF = "/etc/nccl.conf"
FIRST_KERNEL = "6.8.0-90"  # the kernel of the simulated Ubuntu


def put_adapters(machine: Machine) -> None:
    put(machine.container, "/etc/standin-rdma.json", json.dumps(ADAPTERS))
    put(machine.container, "/usr/local/sbin/standin-rdma", (STANDINS / "node/standin_rdma.py").read_bytes(), "0755")
    put(machine.container, "/usr/local/sbin/modprobe", (STANDINS / "programs/modprobe").read_bytes(), "0755")
    inside(machine.container, "standin-rdma")


def packages(machine: Machine) -> dict[str, str]:
    show = "--showformat=${Package} ${Version} ${db:Status-Status}\\n"
    lines = [line.split() for line in machine.inside("dpkg-query", "--show", show).stdout.splitlines()]
    return {name: version for name, version, status in lines if status == "installed"}


def kernel_of(machine: Machine) -> str:
    return machine.inside("cat", "/proc/sys/kernel/osrelease").stdout.strip().removesuffix("-generic")


@pytest.fixture(scope="module")
def apply(gpu_cluster: GpuCluster) -> Callable[..., Result]:
    """Return a function that runs the GPU stack playbook on one node."""

    def run(node: str, *, check: bool = False, **extravars: Any) -> Result:
        return gpu_cluster.play(limit=node, check=check, extravars=extravars)

    return run


@pytest.fixture(scope="module")
def node(gpu_cluster: GpuCluster) -> Machine:
    machine = gpu_cluster.nodes[0]
    assert not DISTRIBUTION & packages(machine).keys() - {"infiniband-diags"}
    # Earlier tests may have installed a newer kernel.
    kernel = kernel_of(machine)
    newer = renamed(read_packages(), FIRST_KERNEL, kernel) if kernel != FIRST_KERNEL else []
    gpu_cluster.served.publish([*read_packages(), *newer])
    for each in gpu_cluster.nodes:  # apt lists read by an earlier test count as fresh
        each.inside("apt-get", "update")
    put_adapters(machine)
    assert machine.inside("cat", "/sys/class/infiniband/mlx5_0/ports/1/state").stdout == "4: ACTIVE\n"
    assert "eth0" in machine.inside("ls", "/sys/class/net").stdout, "the rest of sysfs changed"
    return machine


@pytest.fixture(scope="module")
def inspected(gpu_cluster: GpuCluster, node: Machine) -> Result:
    return gpu_cluster.play("playbooks/inspect.yml")


@pytest.fixture(scope="module")
def planned(inspected: Result, node: Machine, apply: Callable[..., Result]) -> Result:
    before = packages(node)
    result = apply("node1", check=True)
    assert result.rc == 0, result.stdout
    assert packages(node) == before
    return result


@pytest.fixture(scope="module")
def applied(planned: Result, apply: Callable[..., Result]) -> Result:
    result = apply("node1")
    assert result.rc == 0, result.stdout
    return result


def test_inspection_reports_adapters_and_plan_in_one_line(inspected: Result) -> None:
    shown = inspected.results("Evaluate the inspection")["localhost"]["msg"]
    said = [line for line in shown.splitlines() if line.startswith("rdma  ")]
    assert len(said) == 1, shown
    assert "rdma  node1: 3 of 3 RDMA ports active: mlx5_0:1, mlx5_1:1 (InfiniBand 400 Gbit/s); " in said[0]
    assert "mlx5_bond_0:1 (RoCE 25 Gbit/s); the step gpu_stack installs rdma-core, " in said[0]


def test_check_mode_reports_the_plan(planned: Result) -> None:
    assert "+package rdma-core" in planned.stdout
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1" in planned.stdout


def test_node_with_adapters_gets_the_libraries_that_nccl_needs(applied: Result, node: Machine) -> None:
    there = packages(node)
    assert there.keys() >= DISTRIBUTION
    assert there["libibverbs1"] == "50.0-2ubuntu0.2"
    # Like cloud kernels, the simulated kernel has none of the modules.
    assert f"linux-modules-extra-{kernel_of(node)}-generic" in there
    modules = ["mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_umad"]
    assert node.inside("cat", "/etc/modules-load.d/muster-rdma.conf").stdout.split("\n")[1:-1] == modules
    assert set(node.inside("ls", "/sys/module").stdout.split()) >= set(modules)


def test_nccl_conf_selects_the_fast_fabric_and_the_partition(applied: Result, node: Machine) -> None:
    lines = node.inside("cat", CONF).stdout.splitlines()
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1" in lines
    assert "NCCL_IB_PKEY=1" in lines


def test_second_run_changes_nothing(applied: Result, apply: Callable[..., Result]) -> None:
    again = apply("node1")
    assert again.rc == 0, again.stdout
    assert again.changed == []
    checked = apply("node1", check=True)
    assert checked.changed == []


def test_node_without_adapters_is_unchanged(gpu_cluster: GpuCluster, applied: Result) -> None:
    other = gpu_cluster.nodes[1]
    assert "rdma-core" not in packages(other)
    assert not other.inside("ls", "/etc/modules-load.d/muster-rdma.conf", check=False).stdout


def test_missing_requested_adapter_is_reported(applied: Result, apply: Callable[..., Result], node: Machine) -> None:
    before = node.inside("cat", CONF).stdout
    result = apply("node1", nccl_ib_hca=["mlx5_0", "mlx5_9"])
    assert result.rc != 0
    said = "nccl_ib_hca lists the RDMA adapter mlx5_9, but the node has only mlx5_0, mlx5_1, mlx5_bond_0"
    assert said in result.stdout
    assert node.inside("cat", CONF).stdout == before


def test_options_are_written_to_nccl_conf(applied: Result, apply: Callable[..., Result], node: Machine) -> None:
    options = {"nccl_ib_hca": ["mlx5_1"], "nccl_ib_tc": "106", "nccl_ib_pkey": "0x8012"}
    result = apply("node1", **options)
    assert result.rc == 0, result.stdout
    lines = node.inside("cat", CONF).stdout.splitlines()
    assert {"NCCL_IB_HCA==mlx5_1", "NCCL_IB_TC=106", "NCCL_IB_PKEY=1"} <= set(lines)
    assert apply("node1", **options).changed == []


@pytest.mark.slow
def test_doca_is_installed_on_request_and_kept(
    gpu_cluster: GpuCluster, applied: Result, apply: Callable[..., Result]
) -> None:
    other = gpu_cluster.nodes[1]
    dkms = packages(other)["dkms"]
    put_adapters(other)
    request = {
        "rdma_userspace": "doca",
        "rdma_doca_url": gpu_cluster.served.location("doca"),
        "rdma_doca_key": str(gpu_cluster.served.repositories.key.public),
    }
    result = apply("node2", **request)
    assert result.rc == 0, result.stdout
    there = packages(other)
    assert there["doca-ofed"] == "3.2.1-044000"
    assert there["libibverbs1"] == "2510mlnx54-1.2510120"
    assert there["dkms"] == dkms, "dkms of the distribution must be kept"
    assert "perftest" not in there
    assert apply("node2", **request).changed == []
    # A run without the request keeps it, and does not install the distribution's packages beside it.
    kept = apply("node2")
    assert (kept.rc, kept.changed) == (0, []), kept.stdout
    refused = apply("node2", rdma_userspace="distribution")
    assert refused.rc != 0
    assert "DOCA (doca-ofed 3.2.1-044000) is installed, but rdma_userspace is distribution" in refused.stdout
    assert packages(other) == there
