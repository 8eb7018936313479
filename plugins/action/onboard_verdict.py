"""Fails when a node was not accepted.

So that the run ends with an error when one of several nodes is no member in the end.

msg: Which nodes are members and which are not.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.onboard import ending
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    """The callbacks say the same in the end, also of a run that does not come here."""

    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        end = ending.end(ONBOARDING.nodes, check=self._task.check_mode)
        return {"failed": end.red, "msg": end.last}
