"""Pass the nodes of the inventory to the module hosts_file; documented in library/hosts_file.py."""

from __future__ import annotations

from typing import Any

from muster_controller.playbook.action import FilledIn
from muster_controller.playbook.variables import value_of_nodes


class ActionModule(FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        # From the inventory, not from gathered facts, so that an unreachable node gets its line too.
        nodes = value_of_nodes(self.task_vars, self._templar, self._loader, "cluster_address")
        return {"nodes": nodes, "own": self.node}
