"""Fails when a node was not accepted; documented in library/onboard_verdict.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.onboard import ending
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.playbook.action import ControllerAction


class ActionModule(ControllerAction):
    """The callbacks say the same in the end, also of a run that does not come here."""

    def work(self) -> dict[str, Any]:
        end = ending.end(ONBOARDING.nodes, check=self._task.check_mode)
        return {"failed": end.red, "msg": end.last}
