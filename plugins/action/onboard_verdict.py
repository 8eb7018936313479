"""Fails when a node was not accepted.

So that the run ends with an error when one of several nodes is no member in the end.

msg: Which nodes are members and which are not.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster.onboard import ending
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    """The callbacks say the same in the end, also of a run that does not come here."""

    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        end = ending.end(ONBOARDING.nodes, check=self._task.check_mode)
        return {"failed": end.red, "msg": end.last}
