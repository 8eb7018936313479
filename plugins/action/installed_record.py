"""Has each node write down what is installed there.

Writes down on each node of the play what is there now - kernel, boot, driver, GPUs, firmware, the versions of
Muster's packages and the files of the environment - so that drift can say later what has changed since. No step
decides by it. It is written only where it says something else, and is no change of the node's state. Contacts every
node by the connection that the inventory gives it; use it with run_once. A node that cannot be asked is a warning.

written: The nodes on which it says something else than before.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import run_id
from muster_controller.drift.installed import ask_all, requests
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Parts to record, such as environment. Empty means all.
        "parts": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        if self._task.check_mode:
            return {"written": []}
        about = {"by": operator(), "run": run_id(), "parts": self.options["parts"]}
        played = self.task_vars["ansible_play_hosts"]
        asked = requests(self.task_vars, self._templar, self._loader, played)
        answers = ask_all(self, "keep", {node: {**one, **about} for node, one in asked.items()})
        warnings = [
            f"{node}: what is installed was not written down, so that drift cannot say later what has changed: {why}"
            for node, said in answers.items()
            if (why := said.error)
        ]
        written = [node for node, said in answers.items() if not said.error and said.data.get("written")]
        return {"written": written, **({"warnings": warnings} if warnings else {})}
