"""Reads the inventory values that an inspection needs, once for all nodes.

The inspection of every node includes its route to every other node. If each node read the addresses of all others, 200
nodes would require 40,000 template evaluations. Contacts no node; use it with run_once.

requests: The variables of each node, including defaults, with which its inspection is compared.
peers: The training addresses of all nodes.
writes: The folders that Muster writes to, by node.
prefixes: The paths of existing environments in the inventory, by node.
platforms: The supported versions of each distribution.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster.inspect.gpus import UNSET
from muster.pytorch.environments import existing
from muster_controller.gpu_stack.rdma import OPTIONS as RDMA_OPTIONS
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import load_roles, project_root, read_values

REQUESTED = (
    *("cluster_name", "cluster_artifacts_dir", "cluster_address", "cluster_interface", "cluster_gpus", "cluster_user"),
    *("cluster_master_port", "cluster_run_root", "cluster_quarantined", "pytorch_root", "node_baseline_user_uid"),
    *("node_baseline_user_gid", "firewall_mode", "firewall_tight", "cluster_environments"),
    *RDMA_OPTIONS,
)
WRITES = ("pytorch_root", "cluster_run_root")


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        roles = load_roles(self._loader)
        requests = {}
        for name in self.task_vars["groups"]["gpu_nodes"]:
            values = read_values(self.task_vars, self._templar, roles, name, REQUESTED)
            given = self.task_vars["hostvars"].raw_get(name)
            requests[name] = {**values, UNSET: "cluster_gpus" not in given}
        platforms = self._loader.load_from_file(str(project_root() / "roles/cluster/vars/main.yml"))
        return {
            "requests": requests,
            "peers": [request["cluster_address"] for request in requests.values()],
            "writes": {name: [request[variable] for variable in WRITES] for name, request in requests.items()},
            "prefixes": {
                name: [path for entry in request["cluster_environments"].values() if (path := existing(entry))]
                for name, request in requests.items()
            },
            "platforms": platforms["_cluster_platforms"],
        }
