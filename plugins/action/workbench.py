"""Pass the environments that get a Jupyter kernel to the module workbench; documented in library/workbench.py."""

from __future__ import annotations

from typing import Any

from muster.workbench.plan import environments
from muster_controller.playbook.action import FilledIn
from muster_controller.playbook.variables import node_variables


class ActionModule(FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        cluster = node_variables(self.task_vars, self._templar, self._loader, self.node)
        return {"environments": environments(cluster)}
