"""Has each node write down what is installed there; documented in library/installed_record.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import run_id
from muster_controller.drift.installed import ask_all, requests
from muster_controller.playbook.action import ControllerAction


class ActionModule(ControllerAction):
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
