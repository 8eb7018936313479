"""Judge a smoke launch on the controller; documented in library/ddp_smoke_verdict.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]


from muster.launch import smoke
from muster_controller.action import ControllerAction
from muster_controller.artifacts import write_json
from muster_controller.runs import add_verdict


class ActionModule(ControllerAction):
    """Contacts no node."""

    def work(self) -> dict[str, Any]:
        launch = self.options["launch"]
        if "verdict" not in launch:
            return {"skipped": True, "msg": "Nothing was launched."}
        plan, events = launch["plan"], launch["events"]
        verdict = smoke.verdict(plan, launch["verdict"], events, self.options["loss_ratio"])
        measured = smoke.measured(plan, events)
        folder = Path(launch["artifacts"])
        write_json(folder / "smoke.json", measured)
        add_verdict(folder, verdict, instead_of=("launch.", "smoke."))
        result: dict[str, Any] = {"verdict": verdict, "smoke": measured, "artifacts": str(folder)}
        if verdict["status"] not in ("healthy", "degraded"):
            result.update(failed=True, msg=verdict["summary"])
        return result
