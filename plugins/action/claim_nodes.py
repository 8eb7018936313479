"""Claims the nodes of a play for this run.

Claims all nodes of the play for this run, those that it has not claimed yet, and goes on only when it has them all.
When another administrator's run has one, it says which, whose it is and since when; nothing is changed then. The
claims end with ansible-playbook, however that ends. Where the controller itself is gone, they end after a minute in
which they were not renewed. A node that does not answer is left to the tasks that come behind. Who takes and frees a
claim is in the node's journal, journalctl -t muster.

claimed: The nodes that were asked.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible import context
from ansible.errors import AnsibleActionFail

from muster.road.claims import changing
from muster_controller.nodes.claims import CLAIMS, ClaimError, holders_in
from muster_controller.nodes.connection import connect
from muster_controller.nodes.keeper import ask_all
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import doing


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Takes over claims of another run.
        "take_over": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        names = self.task_vars["ansible_play_hosts"]
        if not CLAIMS.token:
            return {"warnings": ["The nodes are not claimed for this run: the callback report is not enabled."]}
        if self._task.check_mode:
            connections = [connect(self, name, self.task_vars) for name in names]
            holders = holders_in(ask_all(connections, "look", {}))
            return {"warnings": [changing(holders)]} if holders else {}
        missing = CLAIMS.missing(names)
        connections = [connect(self, name, self.task_vars) for name in missing]
        try:
            warnings = CLAIMS.claim(connections, doing(context.CLIARGS), take_over=self.options["take_over"])
        except ClaimError as problem:
            raise AnsibleActionFail(str(problem)) from None
        return {"claimed": missing, "warnings": warnings}
