"""Proves that a node can be logged in on.

Logs in as the inventory says, by a connection that shares nothing with those that are open, becomes root there, and
runs a program. Fails where that does not work.

msg: The result.
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
        return {"msg": f"{node}: a new login works, and root can be had there."}
