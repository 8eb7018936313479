"""Fails if a node was not accepted.

Makes the run fail if any of the new nodes did not become a member.

msg: The new nodes that became members, and those that did not.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster.onboard import ending
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    """The callbacks report the same at the end of the run, even if the run fails before this action."""

    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        end = ending.end(ONBOARDING.nodes, check=self._task.check_mode)
        return {"failed": end.red, "msg": end.last}
