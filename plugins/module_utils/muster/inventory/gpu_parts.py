"""Whether what goes beside the driver is requested in words that can be had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..gpu_stack import nccl_conf, nccl_ib, nccl_tests, rdma
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory, InventoryNode


def _toolkits(node: InventoryNode) -> list[Any]:
    versions = node.variables.get("cuda_toolkit_versions")
    return versions if isinstance(versions, list) else []


def toolkits_are_versions(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for version in _toolkits(node):
            if not re.fullmatch(r"\d+\.\d+", str(version), re.ASCII):
                fix = 'Write the first two numbers, such as "13.0"'
                yield Problem(node.name, f"cuda_toolkit_versions has {version!r}", fix)
        default = node.text("cuda_toolkit_default")
        if default and default not in _toolkits(node):
            what = f"cuda_toolkit_default is {default}, which is not in cuda_toolkit_versions"
            yield Problem(node.name, what, "Add it there, or leave the default empty")


def nccl_conf_is_a_mapping(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        if "nccl_conf" not in node.variables:
            continue
        request = node.variables["nccl_conf"]
        for what, fix in nccl_conf.request_problems(request):
            yield Problem(node.name, what, fix)
        if isinstance(request, dict) and node.variables.get("nccl_install") is not True:
            what = "nccl_conf has variables, and the role that writes them comes with nccl_install, which is false"
            yield Problem(node.name, what, "Set nccl_install to true, or write them into /etc/nccl.conf by hand")


def fabric_options_can_be_had(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        hca = node.variables.get("nccl_ib_hca")
        options = nccl_ib.Options(
            hca=tuple(map(str, hca)) if isinstance(hca, list) else (),
            gid_index=node.text("nccl_ib_gid_index"),
            pkey=node.text("nccl_ib_pkey"),
            traffic_class=node.text("nccl_ib_tc"),
            service_level=node.text("nccl_ib_sl"),
        )
        for what, fix in nccl_ib.request_problems(options, node.variables.get("nccl_conf", "auto")):
            yield Problem(node.name, what, fix)
        request = (node.text(f"rdma_{name}") for name in ("userspace", "doca_url", "doca_key"))
        for what, fix in rdma.request_problems(*request):
            yield Problem(node.name, what, fix)


def nccl_tests_can_be_built(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        version, source, digest = (node.text(f"nccl_tests_{name}") for name in ("version", "source", "sha256"))
        nccl = node.variables.get("nccl_install") is True
        for what, fix in nccl_tests.request_problems(version, source, digest, _toolkits(node), nccl=nccl):
            yield Problem(node.name, what, fix)
