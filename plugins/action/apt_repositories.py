"""Pass the inventory's proxies for key downloads to the module apt_repositories; documented in library/."""

from __future__ import annotations

from typing import Any

from muster_controller.packages.sources import node_environment
from muster_controller.playbook.action import FilledIn


class ActionModule(FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        return {"environment": node_environment(self.task_vars, self._templar, self._loader, self.node)}
