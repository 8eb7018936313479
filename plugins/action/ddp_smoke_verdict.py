"""Judge a smoke launch on the controller; documented in library/ddp_smoke_verdict.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.plugins.action import ActionBase

from muster.launch import smoke
from muster_controller.artifacts import write_json
from muster_controller.documentation import argument_spec
from muster_controller.runs import add_verdict


class ActionModule(ActionBase):
    """Contacts no node."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec("ddp_smoke_verdict"))
        launch = arguments["launch"]
        if "verdict" not in launch:
            return {**result, "skipped": True, "msg": "Nothing was launched."}
        plan, events = launch["plan"], launch["events"]
        verdict = smoke.verdict(plan, launch["verdict"], events, arguments["loss_ratio"])
        measured = smoke.measured(plan, events)
        folder = Path(launch["artifacts"])
        write_json(folder / "smoke.json", measured)
        add_verdict(folder, verdict, instead_of=("launch.", "smoke."))
        result.update(changed=False, verdict=verdict, smoke=measured, artifacts=str(folder))
        if verdict["status"] not in ("healthy", "degraded"):
            result.update(failed=True, msg=verdict["summary"])
        return result
