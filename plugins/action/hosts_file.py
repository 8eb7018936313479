"""Gives the module hosts_file the nodes, which only the inventory knows; documented in library/hosts_file.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.plugins.action import ActionBase

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster_controller.variables import value_of_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        # From the inventory, and never from what was gathered: a node that is down has its line all the same.
        nodes = value_of_nodes(task_vars, self._templar, self._loader, "cluster_address")
        arguments = {"nodes": nodes, "own": task_vars["inventory_hostname"], **self._task.args}
        result.update(self._execute_module(module_name="hosts_file", module_args=arguments, task_vars=task_vars))
        return result
