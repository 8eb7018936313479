"""Puts together what every node shall know of every other; documented in library/ssh_mesh_members.py."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]


from muster.network import ssh_mesh
from muster_controller.action import ControllerAction
from muster_controller.variables import Roles, load_roles, read_node, registered, staying

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ControllerAction):
    """Contacts no node."""

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

    def _member(self, task_vars: Mapping[str, Any], roles: Roles, name: str, looks: str) -> ssh_mesh.Member:
        values = read_node(task_vars, self._templar, roles, name, ("cluster_address", "ansible_host")).values
        address = str(values["cluster_address"])
        look = registered(task_vars, name, looks)
        if "host_keys" not in look:
            return ssh_mesh.Member(name, address, seen=False)
        return ssh_mesh.Member(
            name=name,
            address=address,
            sources=(address, *other_sources(str(values.get("ansible_host", "")))),
            port=int(look["port"]),
            key=str(look["key"]),
            host_keys=tuple(str(key) for key in look["host_keys"]),
            hostname=str(look["hostname"]),
        )


def other_sources(ansible_host: str) -> list[str]:
    """The address of the controller's way in, from which the node may log in on a peer as well."""
    try:
        address = ipaddress.ip_address(ansible_host)
    except ValueError:
        return []
    return [] if address.is_loopback else [str(address)]
