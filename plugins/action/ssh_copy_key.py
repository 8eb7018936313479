"""Copies the controller's public key to a node and tests a login with it; documented in library/ssh_copy_key.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from muster.network.copy_key import MAKE_ONE, key_line, public_key_file
from muster.verdict.commands import vault
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import FilledIn
from muster_controller.playbook.node_error import NodeError, one_line

NOT_TAKEN = (
    "the key is in authorized_keys, but sshd does not accept it: PubkeyAuthentication may be off, or other users may"
    " have write permission for the home directory. Check the log on the node: journalctl -u ssh -n 20"
)
NO_WAY_IN = (
    "the node accepts neither your key nor the password. Add --ask-pass to the command, or set it in the inventory"
    f" as ansible_password, encrypted with: {vault()}"
)


class ActionModule(FilledIn):
    """Adds the key over Ansible's connection, and then logs in over a new one."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        if self._connection.transport != "ssh":
            return {"changed": False, "msg": "This node is not connected over SSH."}
        try:
            result = super().run(tmp, task_vars)
        except AnsibleConnectionFailure as problem:
            if "Permission denied" in str(problem):
                name = (task_vars or {})["inventory_hostname"]
                raise AnsibleConnectionFailure(f"{name}: {NO_WAY_IN} ({one_line(str(problem))})") from problem
            raise
        if not result.get("failed") and not self._task.check_mode:
            self._prove()
        return result

    def from_inventory(self) -> dict[str, Any]:
        private = str(self._connection.get_option("private_key_file") or "")
        folder = Path("~/.ssh").expanduser()
        there = [path.name for path in folder.glob("id_*")]
        name = public_key_file(str(Path(private).expanduser()) if private else "", str(folder), there)
        if not name:
            raise AnsibleActionFail(f"{self.node}: no public key found in {folder}: {MAKE_ONE}")
        try:
            return {"key": key_line(Path(name).read_text(encoding="utf-8"))}
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise AnsibleActionFail(f"{self.node}: {name} cannot be copied: {why}.") from problem

    def _prove(self) -> None:
        """Log in over a new connection, without a password."""
        node = connect(self, self.node, self.task_vars, fresh=True)
        node.connection.set_option("password", None)
        node.connection._play_context.password = None
        try:
            code, _, said = node.python("-c pass", b"", privileged=False)
        except NodeError as problem:
            raise AnsibleActionFail(f"{self.node}: {NOT_TAKEN} ({problem}).") from problem
        if code:
            raise AnsibleActionFail(f"{self.node}: {NOT_TAKEN} ({said.strip()[-200:]}).")
