"""Records the installed state on each node.

Records the current state of each node of the play: kernel, boot, driver, GPUs, firmware, the versions of Muster's
packages and the files of the environment. drift compares later states with this record. No step makes decisions from
the record. A record is written only if it differs from the previous one. Writing a record is not reported as a change.
Contacts every node with the connection settings of the inventory; use it with run_once. An unreachable node only causes
a warning.

written: The nodes whose record changed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import run_id
from muster_controller.drift.installed import ask_all, requests
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import may_write


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Parts to record, such as environment. Empty means all.
        "parts": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        played = self.task_vars["ansible_play_hosts"]
        if self._task.check_mode or not may_write(self.task_vars, self._templar, self._loader, played):
            return {"written": []}
        about = {"by": operator(), "run": run_id(), "parts": self.options["parts"]}
        asked = requests(self.task_vars, self._templar, self._loader, played)
        answers = ask_all(self, "keep", {node: {**one, **about} for node, one in asked.items()})
        warnings = [
            f"{node}: the installed state was not recorded, so drift cannot report later changes: {why}"
            for node, said in answers.items()
            if (why := said.error)
        ]
        written = [node for node, said in answers.items() if not said.error and said.data.get("written")]
        return {"written": written, **({"warnings": warnings} if warnings else {})}
