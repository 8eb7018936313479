"""Pass digests of the nodes' login settings to the module ssh_mesh_proof (documented in library/)."""

from __future__ import annotations

from typing import Any

from muster.network.ssh_mesh import way
from muster_controller.playbook.action import FilledIn
from muster_controller.playbook.variables import registered


class ActionModule(FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        looks = self._task.args.get("looks", "")
        seen = {name: self._ways(name, looks) for name in self.task_vars["groups"]["gpu_nodes"]} if looks else {}
        own = seen.get(self.node, {}).get("out", "")
        return {"ways": {name: way(own, ways["in"]) for name, ways in seen.items() if own and ways}}

    def _ways(self, name: str, looks: str) -> dict[str, str]:
        return dict(registered(self.task_vars, name, looks).get("ways") or {})
