"""Combines the SSH data of all nodes.

Combines the results of ssh_mesh_key on each node of the group gpu_nodes in this run with the nodes' addresses from the
inventory. Runs once, on the controller, because a template over 200 nodes would be evaluated 200 times. Contacts no
node.

members: Every node, with its address, its keys, and whether it was checked in this run.
refusals: For nodes that have the same key as another node, the problem and the fix.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from muster.network import ssh_mesh
from muster_controller.network.mesh_members import member_of
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import Roles, load_roles, read_node, registered, staying

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Name of the variable with the registered ssh_mesh_key results.
        "looks": {"type": "str", "required": True},
    }

    def work(self) -> dict[str, Any]:
        roles = load_roles(self._loader, "cluster")
        names = staying(self.task_vars, self._templar)
        members = [self._member(self.task_vars, roles, name, self.options["looks"]) for name in names]
        seen = [member for member in members if member.seen]
        result = {"members": [asdict(member) for member in members], "refusals": ssh_mesh.clashes(seen)}
        warnings = ssh_mesh.same_host_keys(seen)
        if warnings:
            result["warnings"] = warnings
        return result

    def _member(self, task_vars: Mapping[str, Any], roles: Roles, name: str, looks: str) -> ssh_mesh.MeshMember:
        values = read_node(task_vars, self._templar, roles, name, ("cluster_address", "ansible_host")).values
        address = str(values["cluster_address"])
        return member_of(name, address, str(values.get("ansible_host", "")), registered(task_vars, name, looks))
