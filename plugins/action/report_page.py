"""Write the report of a run again.

Reads what a run left in artifacts/<cluster>/<run>/ and writes report.html there. A run writes its own page when it
ends. This is for one that was interrupted. Runs on the controller and contacts no node.

page: Where the page is, on the controller.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster_controller.artifacts.runs import history
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.variables import node_variables
from muster_controller.report.page import rewrite_page


class ActionModule(ControllerAction):
    """Contacts no node."""

    OPTIONS: ClassVar[Options] = {
        # Id of the run, which is the name of its folder. Empty means the newest run.
        "run": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        head = next(iter(self.task_vars["groups"]["gpu_nodes"]))
        cluster = node_variables(self.task_vars, self._templar, self._loader, head)
        kept = list(history(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"]))
        asked = [folder for folder in kept if folder.name == self.options["run"] or not self.options["run"]]
        if not asked:
            known = ", ".join(folder.name for folder in kept[:3]) or "none"
            raise AnsibleActionFail(f"There is no run {self.options['run']} of this cluster; the newest are {known}.")
        page = str(rewrite_page(asked[0]))
        return {"page": page, "outcome": f"the page of {asked[0].name} is written anew: {short(page)}"}
