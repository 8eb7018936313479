"""Checks that a new login to a node works.

Logs in as configured in the inventory, over a new connection instead of a shared one, becomes root and runs a program.
Fails if one of these steps fails.

msg: A sentence that reports the successful login.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster_controller.members.members import MEMBERS
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        node = self.task_vars["inventory_hostname"]
        MEMBERS.call(connect(self, node, self.task_vars, fresh=True), "look", {}, privileged=True)
        return {"msg": f"{node}: a new login works, and becoming root works."}
