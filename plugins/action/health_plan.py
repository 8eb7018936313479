"""Reads the launch settings of all nodes from the inventory, once for all nodes.

Determines which nodes take part in a launch, the head node, and the addresses, port and backend of the rendezvous.
Contacts no node; use it with run_once.

requests: The training address, interface and port of each node, and the traffic that its firewall must allow, in the
    order of the inventory.
sources: The package sources of each node, as set in the inventory.
quarantined: Names of the nodes that are excluded from every launch.
participants: Names of the nodes of a launch, in the order of their node ranks.
head: Name of the node with node rank 0.
backend: gloo or nccl.
port: Rendezvous port on the head node.
launch_ports: Range of ports that the firewalls open between nodes for launches.
folder: Folder on the controller with the cluster's artifacts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.launch.plan import NodeSpec, PlanError, chosen_backend, participants
from muster.packages import unencrypted
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import load_roles, read_values

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUESTED = (
    *("cluster_name", "cluster_artifacts_dir", "cluster_address", "cluster_interface", "cluster_gpus"),
    *("cluster_nproc_per_node", "cluster_torchrun", "cluster_master_port", "cluster_quarantined", "cluster_backend"),
    *("cluster_launch_nodes", "firewall_allow", "firewall_launch_ports"),
    *("cluster_http_proxy", "cluster_https_proxy", "cluster_no_proxy"),
    *unencrypted.OPTIONS,
)


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Nodes to check, as if a launch used only these nodes.
        "nodes": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        try:
            return self._plan(self.task_vars)
        except PlanError as exc:
            raise AnsibleActionFail(" ".join(exc.problems)) from exc

    def _plan(self, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        roles = load_roles(self._loader, "cluster", "pytorch", "firewall")
        nodes: dict[str, dict[str, Any]] = {}
        for name in task_vars["groups"].get("gpu_nodes", []):
            nodes[name] = read_values(task_vars, self._templar, roles, name, REQUESTED)
        cluster = next(iter(nodes.values()), {})
        specs = [NodeSpec.read(name, own) for name, own in nodes.items()]
        only = self.options["nodes"]
        launched = participants(specs, only or cluster.get("cluster_launch_nodes", []))
        looked_at = {name: own for name, own in nodes.items() if name in only or not only}
        backend = chosen_backend(cluster["cluster_backend"], launched)
        return {
            "participants": [spec.name for spec in launched],
            "head": launched[0].name,
            "backend": backend,
            "port": cluster["cluster_master_port"],
            "launch_ports": cluster["firewall_launch_ports"],
            "folder": str(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"]),
            "sources": {
                name: {option: own[option] for option in unencrypted.OPTIONS}
                for name, own in looked_at.items()
                if not own["cluster_quarantined"]
            },
            "quarantined": [name for name, own in looked_at.items() if own["cluster_quarantined"]],
            "requests": {
                name: {
                    "address": own["cluster_address"],
                    "interface": own["cluster_interface"],
                    "port": own["cluster_master_port"],
                    "allow": own["firewall_allow"],
                }
                for name, own in looked_at.items()
                if not own["cluster_quarantined"]
            },
        }
