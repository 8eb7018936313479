"""Has the module apt_repositories fetch keys through the proxies of the inventory; see library/apt_repositories.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.plugins.action import ActionBase

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster_controller.sources import node_environment

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        proxies = node_environment(task_vars, self._templar, self._loader, task_vars["inventory_hostname"])
        arguments = {"environment": proxies, **self._task.args}
        result.update(self._execute_module(module_name="apt_repositories", module_args=arguments, task_vars=task_vars))
        return result
