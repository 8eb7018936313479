"""Write the page of a run anew; documented in library/report_page.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster_controller.documentation import argument_spec
from muster_controller.page import rewrite_page
from muster_controller.runs import history
from muster_controller.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ActionBase):
    """Contacts no node."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec("report_page"))
        head = next(iter(task_vars["groups"]["gpu_nodes"]))
        cluster = node_variables(task_vars, self._templar, self._loader, head)
        kept = list(history(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"]))
        asked = [folder for folder in kept if folder.name == arguments["run"] or not arguments["run"]]
        if not asked:
            known = ", ".join(folder.name for folder in kept[:3]) or "none"
            raise AnsibleActionFail(f"There is no run {arguments['run']} of this cluster; the newest are {known}.")
        return {**result, "changed": False, "page": str(rewrite_page(asked[0]))}
