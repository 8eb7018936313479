"""Judge the inventory on the controller. The rules are in module_utils/muster/inventory.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version

from muster.inventory import Inventory, Node, problems
from muster_vars import cluster_options, read_node

CONNECTION = ("ansible_host", "ansible_port", "ansible_connection")


class ActionModule(ActionBase):
    """Contacts no node."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec({"connects": {"type": "bool", "default": True}})
        found = problems(self._inventory(task_vars or {}, arguments["connects"]))
        result["changed"] = False
        if found:
            count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
            lines = [f"The inventory has {count}, and no node was contacted."]
            lines += [f"- {problem}" for problem in found]
            result.update(failed=True, msg="\n".join(lines))
        return result

    def _inventory(self, task_vars: dict[str, Any], connects: bool) -> Inventory:
        options = tuple(cluster_options(self._loader))
        names = task_vars["groups"].get("gpu_nodes", [])
        return Inventory(
            nodes=tuple(self._node(task_vars, name, options) for name in names),
            options=options,
            forks=context.CLIARGS["forks"],
            ansible_version=tuple(int(number) for number in ansible_version.split(".")[:2]),
            connects=connects,
        )

    def _node(self, task_vars: dict[str, Any], name: str, options: tuple[str, ...]) -> Node:
        reading = read_node(task_vars, self._templar, self._loader, name, also=CONNECTION)
        unknown = tuple(
            variable
            for variable in task_vars["hostvars"].raw_get(name)
            if variable.startswith("cluster_") and variable not in options
        )
        return Node(name, reading.values, reading.errors, unknown)
