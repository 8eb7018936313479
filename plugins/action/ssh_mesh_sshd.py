"""Changes sshd settings, and reverts the change if a new connection fails.

Writes a settings file for sshd, validates it with sshd, and reloads sshd. Open connections stay open. A timer on the
node restores the previous settings, unless a new connection from the controller succeeds. Before that, reverts changes
that an interrupted run did not confirm.

changed: Whether the settings of sshd changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.verdict.commands import playbook
from muster_controller.network.guard import Guard, GuardError, UndoCommand
from muster_controller.nodes.connection import NodeConnection, connect
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = NodeProgram("sshd")
WHAT = "sshd"
FIX = (
    "If the controller has pinned only the node's ecdsa key, it can no longer connect, because sshd would not offer"
    ' that key. Disable these settings with ssh_mesh_sshd: "off", or pin the ed25519 key:'
    f" {playbook('playbooks/trust.yml')}"
)


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Configuration file in a folder that sshd_config includes.
        "path": {"type": "path", "required": True},
        # Content of the file.
        "settings": {"type": "str", "required": True},
        # Time in seconds until the timer reverts the change.
        "seconds": {"type": "int", "default": 40},
    }

    def work(self) -> dict[str, Any]:
        name = self.task_vars["inventory_hostname"]
        try:
            return self._keep(name, self.options, self.task_vars)
        except GuardError as exc:
            raise AnsibleActionFail(str(exc)) from exc

    def _keep(self, name: str, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        node = connect(self, name, task_vars)
        path, settings = options["path"], options["settings"]
        guard = Guard(self, name, task_vars, WHAT, options["seconds"])
        if not self._task.check_mode:
            guard.settle()
        before = PROGRAM.call(node, "look", {"path": path}, privileged=True)["before"] or ""
        if not before and not settings:
            return {}
        if not self._task.check_mode:
            guard.change(
                files=[path],
                undo=[UndoCommand(["systemctl", "try-reload-or-restart", "ssh.service"])],
                apply=lambda: apply(node, path, settings),
                fix=FIX,
            )
        return {
            "changed": True,
            "changes": {"sshd": [path]},
            "diff": {"before": before, "after": settings, "before_header": path, "after_header": path},
        }


def apply(node: NodeConnection, path: str, settings: str) -> None:
    failed = PROGRAM.call(node, "apply", {"path": path, "settings": settings}, privileged=True)["failed"]
    if failed:
        raise NodeError(failed, reachable=True)
