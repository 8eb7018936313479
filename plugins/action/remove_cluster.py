"""Removes Muster from all nodes of a cluster, together with the role wipe.

Contacts the nodes with the connection settings of the inventory. The inventory is not changed: a node that does not
respond is still listed when the run is repeated. Use it with run_once.

outcome: The result in one sentence.
running: Ids of the launches to stop first.
silent: For each node that does not respond, the reason.
unfinished: What a failed node may keep, and the command that completes the removal.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.members import leaving
from muster_controller.members.members import Members, refuse, refuse_part
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.terminal import terminal


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # look checks whether Muster can be removed now. end reports the result.
        "step": {"type": "str", "choices": ["look", "end"], "required": True},
        # Whether running launches may be stopped.
        "running": {"type": "bool", "default": False},
        # Result of the step look, for the step end.
        "silent": {"type": "dict", "default": {}},
    }

    def work(self) -> dict[str, Any]:
        cluster = Members(self, self.task_vars)
        nodes, command = list(cluster.nodes), terminal().command
        if self.options["step"] == "end":
            silent = self.options["silent"]
            if silent and not self._task.check_mode:
                raise AnsibleActionFail(leaving.not_removed(nodes, silent, command))
            return {
                "outcome": leaving.removed(
                    [name for name in nodes if name not in silent],
                    short(str(self.task_vars.get("inventory_dir") or "it")),
                )
            }
        refuse_part(leaving.KEEP)
        running, heard = cluster.launches(nodes, nodes)
        refuse(leaving.silence(nodes, heard.silent))
        if not self.options["running"]:
            refuse(leaving.running_launches(running, command))
        unfinished = "" if self._task.check_mode else leaving.to_finish(command)
        return {"running": list(running), "silent": heard.silent, "unfinished": unfinished}
