"""Each file in cases/ contains an inventory, and exactly the problems that validation must report.

inventory: fields of Inventory that differ from a valid one. common: variables of all nodes. nodes: name -> {variables,
errors, unknown, places}. problems: the sentences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import cases, document_of
from muster.inventory import CLUSTER_WIDE, Inventory, InventoryNode, problems
from muster.inventory.options import options_of

ROOT = Path(__file__).parents[3]
OF_ROLES = {
    path.parents[1].name: options_of(document_of(path)) for path in ROOT.glob("roles/*/meta/argument_specs.yml")
}
OPTIONS = [name for options in OF_ROLES.values() for name in options]
PER_NODE = {
    "cluster_address",
    "cluster_host_key",
    "cluster_interface",
    "cluster_gpus",
    "cluster_gpu_model",
    "cluster_nproc_per_node",
    "cluster_quarantined",
    "cluster_torchrun",
    "cluster_environments_root",
    "gpu_stack_system",
    "cuda_toolkit_mode",
    "cuda_toolkit_default",
    "nccl_mode",
    "nccl_conf",
    "nccl_ib_hca",
    "nccl_ib_gid_index",
    "nccl_ib_pkey",
    "nccl_ib_tc",
    "nccl_ib_sl",
    "rdma_mode",
    "rdma_userspace",
    "rdma_doca_url",
    "rdma_doca_key",
    "container_toolkit_mode",
    "dcgm_mode",
    "watch_mode",
    "watch_interval",
    "watch_nightly",
    "watch_metrics_dir",
    "monitoring_mode",
    "slurm_mode",
    "dcgm_remove_old",
    "health_prometheus_dir",
    "mtu_mode",
    "mtu_confirm_seconds",
    "shared_data_scratch",
    "shared_data_scratch_gb",
    "shared_data_mode",
    "workbench_mode",
}
WITH_A_PLACE = (
    "cluster",
    "mtu",
    "shared_data",
    "gpu_stack",
    "rdma",
    "cuda_toolkit",
    "nccl",
    "container_toolkit",
    "dcgm",
    "health",
    "watch",
    "monitoring",
    "slurm",
    "workbench",
)
DEFAULTS = {
    "cluster_name": "rack",
    "cluster_interface": "",
    "cluster_gpus": 0,
    "cluster_nproc_per_node": 1,
    "cluster_quarantined": False,
    "cluster_backend": "auto",
    "cluster_master_port": 29500,
    "cluster_torch_version": "2.13.0",
    "cluster_user": "muster",
    "cluster_launch_nodes": [],
    "cluster_artifacts_dir": "/srv/muster/artifacts",
}


def node(name: str, given: dict[str, Any], common: dict[str, Any]) -> InventoryNode:
    errors = given.get("errors", {})
    variables = {**DEFAULTS, **common, **given.get("variables", {})}
    variables.setdefault("cluster_address", variables.get("ansible_host", name))
    return InventoryNode(
        name,
        {key: value for key, value in variables.items() if key not in errors},
        errors,
        tuple(given.get("unknown", ())),
        given.get("places", {}),
    )


@cases(__file__, "problems")
def test_validation_reports_exactly_the_expected_problems(case: dict[str, Any]) -> None:
    settings = {"forks": 50, "ansible_version": [2, 19], "connects": True, **case.get("inventory", {})}
    settings.update({key: tuple(value) for key, value in settings.items() if isinstance(value, list)})
    nodes = tuple(node(name, given or {}, case.get("common", {})) for name, given in case["nodes"].items())
    found = problems(Inventory(nodes=nodes, options=tuple(OPTIONS), **settings))
    assert [str(problem) for problem in found] == case["problems"]


def test_every_option_is_declared_as_cluster_wide_or_per_node() -> None:
    assert set(CLUSTER_WIDE) | PER_NODE == {name for role in WITH_A_PLACE for name in OF_ROLES[role]}
    assert not set(CLUSTER_WIDE) & PER_NODE
