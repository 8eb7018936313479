"""Starts, stops or queries the notebook of a user on a node.

Starts JupyterLab as a unit of the user's systemd manager, on a node prepared by the role workbench. Waits until
JupyterLab accepts requests with the token and rejects requests without the token. Prints the ssh command of a tunnel to
the notebook, with the jump hosts of the inventory, and the path of the token. Only the user can read the token file.
The token never appears in output or argument lists. An administrator manages the notebook of any launch user. A launch
user manages their own notebook, without root. Contacts the node with the connection settings of the inventory; use it
with run_once.

notebook: running, at_boot (whether the notebook starts at boot), user, socket and token_file.
ssh: The ssh command of the tunnel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.verdict.foreign import quote
from muster.workbench.notebook import AnswerError, Notebook, SshAccess, changes, lines, problem, read, said_last, tunnel
from muster_controller.nodes.connection import connect
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import node_variables

if TYPE_CHECKING:
    from muster_controller.nodes.connection import NodeConnection

PROGRAM = NodeProgram("notebook")
VERBS = {"started": "start", "stopped": "stop", "looked_at": "look"}


class ActionModule(ControllerAction):
    ROLE = "notebook"
    OPTIONS: ClassVar[Options] = {
        # Node of the notebook.
        "on_node": {"type": "str", "default": ""},
        # Nodes on which notebooks are allowed.
        "nodes": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        options = self.options
        known = self.task_vars["groups"].get("gpu_nodes", [])
        why = problem(options["nodes"], known, options["on_node"], options["port"])
        if why:
            raise AnsibleActionFail(why)
        name = options["on_node"] or options["nodes"][0]
        node = connect(self, name, self.task_vars)
        before = self._ask(node, "look")
        changed = changes(before, options["state"], options["at_boot"])
        verb = "look" if self._task.check_mode else VERBS[options["state"]]
        seen = self._ask(node, verb) if verb != "look" else before
        way = way_to(node, own=not options["user"])
        self._show(lines(name, seen, way, options["port"]))
        shown = {key: value for key, value in seen.items() if key != "answers"}
        line = tunnel(way, seen["user"], seen["socket"], options["port"]) if way and seen["running"] else ""
        outcome = said_last(name, seen, line, checked=bool(self._task.check_mode and changed))
        return {"changed": changed, "notebook": shown, "outcome": outcome, **({"ssh": line} if line else {})}

    def _ask(self, node: NodeConnection, verb: str) -> Notebook:
        cluster = node_variables(self.task_vars, self._templar, self._loader, node.name)
        request = {
            "user": self.options["user"],
            "users_root": cluster["cluster_users_root"],
            "at_boot": self.options["at_boot"],
        }
        said = PROGRAM.call(node, verb, request, privileged=bool(self.options["user"]))
        if said.get("error"):
            raise AnsibleActionFail(f"{node.name} reports: {quote(str(said['error']))}.")
        try:
            return read(node.name, said, self.options["user"], str(cluster["cluster_users_root"]))
        except AnswerError as problem:
            raise AnsibleActionFail(str(problem)) from None

    def _show(self, texts: list[str]) -> None:
        for text in texts:
            Display().display(typed(text))


def way_to(node: NodeConnection, *, own: bool) -> SshAccess | None:
    """Return the SSH settings of the node from the inventory, or None if the inventory uses another connection.

    own: whether the login user owns the notebook. Only in this case, the settings include the private key.
    """
    connection = node.connection
    if connection.transport != "ssh":
        return None
    arguments: list[str] = []
    for option in ("ssh_common_args", "ssh_extra_args"):
        arguments += connection._split_ssh_args(connection.get_option(option) or "")
    port, key = connection.get_option("port"), connection.get_option("private_key_file")
    arguments += ["-p", str(port)] if port else []
    arguments += ["-i", str(key)] if key and own else []
    return SshAccess(str(connection.get_option("host")), tuple(arguments))
