"""Packages and kernel modules for a node with an RDMA adapter, chosen from the tables of the gpu_stack role."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from muster.gpu_stack.rdma import RdmaPart
from muster_controller.gpu_stack import rdma

FACTS = {
    "adapters": [{"driver": "mlx5_core", "infiniband": True}],
    "ports": [],
    "stack": "",
    "known": [],
    "loaded": ["ib_uverbs"],
    "kernel": "6.8.0-90-generic",
}
PACKAGES = (
    "rdma-core",
    "libibverbs1",
    "ibverbs-providers",
    "librdmacm1",
    "ibverbs-utils",
    "infiniband-diags",
    "perftest",
)
SOCKETS = "without libibverbs, NCCL uses sockets instead of RDMA"


def part(*, mode: str = "manage", userspace: str = "auto", has_gpus: bool = True, **system: Any) -> RdmaPart:
    facts = {"rdma": FACTS, "system": {"id": "ubuntu", **system}}
    values = {"rdma_mode": mode, "rdma_userspace": userspace}
    return rdma.part_of(rdma.table(DataLoader()), "node1", values, facts, has_gpus=has_gpus)


def test_missing_kernel_modules_are_installed_on_ubuntu() -> None:
    found = part()
    assert (found.source, found.why) == ("distribution", SOCKETS)
    assert found.packages == (*PACKAGES, "linux-modules-extra-6.8.0-90-generic")
    assert sorted(found.modules) == ["ib_umad", "ib_uverbs", "mlx5_ib", "rdma_ucm"]
    assert sorted(found.load) == ["ib_umad", "mlx5_ib", "rdma_ucm"]


def test_missing_kernel_modules_require_another_kernel_on_debian() -> None:
    (refusal,) = part(id="debian").refusals
    assert refusal.why.startswith("the kernel 6.8.0-90-generic does not have the module that the RDMA adapter requires")
    assert (refusal.node, refusal.fix) == (
        "node1",
        "Boot the distribution's standard kernel: cloud kernels are built without these modules",
    )


def test_no_kernel_modules_are_loaded_in_a_container() -> None:
    found = part(container=True)
    assert (found.packages, found.modules, found.load) == (PACKAGES, (), ())


@pytest.mark.parametrize(
    ("asked", "source", "packages", "why"),
    [
        ({"userspace": "doca"}, "doca", ("doca-ofed",), "requested by rdma_userspace"),
        ({"mode": "off"}, "", (), 'rdma_mode is "off"'),
        ({"has_gpus": False}, "", (), "the node has no GPUs, and only NCCL uses RDMA"),
    ],
)
def test_source_depends_on_rdma_options_and_gpus(asked: Any, source: str, packages: tuple[str, ...], why: str) -> None:
    found = part(**asked)
    assert (found.source, found.packages, found.why, found.is_due) == (source, packages, why, bool(source))


def test_node_without_facts_is_treated_as_having_no_rdma_adapter() -> None:
    values = dict.fromkeys(rdma.OPTIONS, "manage")
    found = rdma.part_of(rdma.table(DataLoader()), "node1", values, None, has_gpus=True)
    assert found == RdmaPart(why="the node has no RDMA adapter")
