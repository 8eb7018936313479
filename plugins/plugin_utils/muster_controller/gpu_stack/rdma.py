"""Choose the RDMA packages of a node, based on its inspection and the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.gpu_stack import rdma
from muster_controller.playbook.variables import project_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.parsing.dataloader import DataLoader

NAMES = "roles/rdma/vars/main.yml"
OPTIONS = ("rdma_mode", "rdma_userspace", "rdma_doca_url", "rdma_doca_key")


def table(loader: DataLoader) -> rdma.RdmaTable:
    """Return the names of packages and kernel modules from the variables of the role rdma."""
    names: Mapping[str, Any] = loader.load_from_file(str(project_root() / NAMES))
    return rdma.RdmaTable(
        packages=tuple(names["_rdma_packages"]),
        doca=tuple(names["_rdma_doca_packages"]),
        modules=tuple(names["_rdma_modules"]),
        of_infiniband=tuple(names["_rdma_modules_of_infiniband"]),
        of_driver=names["_rdma_modules_of_driver"],
    )


def part_of(
    names: rdma.RdmaTable, node: str, values: Mapping[str, Any], facts: Mapping[str, Any] | None, *, has_gpus: bool
) -> rdma.RdmaPart:
    """values: the values of OPTIONS for the node. facts: the facts from the inspection, or None if the node was not
    inspected."""
    system = facts["system"] if facts else {}
    seen = rdma.RdmaNodeFacts(
        node,
        rdma=facts.get("rdma") if facts else None,
        has_gpus=has_gpus,
        distribution=system.get("id", ""),
        container=bool(system.get("container")),
    )
    return rdma.decide(names, rdma.RdmaRequest(values["rdma_mode"], values["rdma_userspace"]), seen)
