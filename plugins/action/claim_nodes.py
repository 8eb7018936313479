"""Claims the nodes of a play for this run.

Claims all nodes of the play that this run has not claimed yet. The task succeeds only if all of them are claimed. If
another administrator's run holds a claim, the task reports the node, the holder and the time, and changes nothing.
Claims are released when ansible-playbook ends, also after an error. If the controller is lost, claims expire one minute
after the last renewal. In check mode, only reports claims of other runs. A node that does not respond is not an error
here; the tasks that follow report it. The journal of a node records who claims and releases the node (journalctl -t
muster).

claimed: The nodes that were claimed by this task.
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
from muster_controller.playbook.variables import may_write


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Takes over the claims of another run.
        "take_over": {"type": "bool", "default": False},
        # The play only runs roles. If their modes allow no changes (cluster_mode verify), no node is claimed.
        "for_roles": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        names = self.task_vars["ansible_play_hosts"]
        if not CLAIMS.token:
            return {"warnings": ["The nodes are not claimed, because the callback plugin report is disabled."]}
        only_roles = self.options["for_roles"]
        if self._task.check_mode or (only_roles and not may_write(self.task_vars, self._templar, self._loader, names)):
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
