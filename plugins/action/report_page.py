"""Rewrites the report of a run.

Reads the artifacts of a run in artifacts/<cluster>/<run>/ and writes report.html into the same folder. Every run writes
its report when the run ends. Use this action for an interrupted run. Runs on the controller and contacts no node.

page: Path of the report on the controller.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster_controller.artifacts.runs import history
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.variables import node_variables
from muster_controller.report.page import rewrite_page


class ActionModule(ControllerAction):
    ROLE = "report"
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        head = next(iter(self.task_vars["groups"]["gpu_nodes"]))
        cluster = node_variables(self.task_vars, self._templar, self._loader, head)
        kept = list(history(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"]))
        asked = [folder for folder in kept if folder.name == self.options["run"] or not self.options["run"]]
        if not asked:
            known = ", ".join(folder.name for folder in kept[:3]) or "none"
            raise AnsibleActionFail(f"This cluster has no run {self.options['run']}. The newest runs are {known}.")
        page = str(rewrite_page(asked[0]))
        return {"page": page, "outcome": f"the report of {asked[0].name} was rewritten: {short(page)}"}
