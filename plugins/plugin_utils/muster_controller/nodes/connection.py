"""Connects to several nodes from one action plugin.

Because a launch has one supervisor, one plugin connects to all nodes of the launch. Each connection uses the user, jump
host and privilege escalation from the inventory, like a connection created by Ansible's task executor.
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.parsing.convert_bool import boolean

from muster_controller.playbook.node_error import NodeError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase
    from ansible.plugins.connection import ConnectionBase

DEFAULT_INTERPRETER = "/usr/bin/python3"
NOT_SHARED = "-o ControlMaster=no -o ControlPath=none"


@dataclass(frozen=True)
class NodeConnection:
    """A node, with the connection from the inventory through which programs run."""

    name: str
    connection: ConnectionBase
    interpreter: str

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        """Run Python on the node with this standard input. Return exit code, stdout and stderr. Raises NodeError."""
        command = f"{self.interpreter} {arguments}"
        become = self.connection.become if privileged else None
        if become is not None:
            command = become.build_become_command(command, self.connection._shell)
        try:
            code, out, err = self.connection.exec_command(command, in_data=text, sudoable=become is not None)
        except AnsibleConnectionFailure as exc:
            raise NodeError(one_line(str(exc)), reachable=False) from exc
        except AnsibleError as exc:
            raise NodeError(one_line(str(exc)), reachable=True) from exc
        return code, to_text(out), to_text(err)

    def beside(self) -> NodeConnection:
        """Return another connection to the same node for use in another thread. This is necessary because a connection
        and its become plugin hold the state of a running command."""
        other = copy(self.connection)
        if other.become is not None:
            other.set_become_plugin(copy(other.become))
        return NodeConnection(self.name, other, self.interpreter)


def connect(action: ActionBase, host: str, task_vars: Mapping[str, Any], *, fresh: bool = False) -> NodeConnection:
    """Set up the connection from the inventory for this host, without connecting yet.

    fresh: whether to use a new SSH connection even if ssh could reuse an open one, to test the login.
    """
    variables = {**task_vars["hostvars"].raw_get(host), "hostvars": task_vars["hostvars"]}
    templar = action._templar.copy_with_new_env(available_variables=variables)
    kind = templar.template(variables.get("ansible_connection", constants.DEFAULT_TRANSPORT))
    play_context = action._play_context.copy()
    play_context.connection = kind
    play_context.remote_addr = str(templar.template(variables.get("ansible_host", host)))
    connection, _ = action._shared_loader_obj.connection_loader.get_with_context(
        kind, play_context, new_stdin=None, task_uuid=action._task._uuid, ansible_playbook_pid=str(os.getppid())
    )
    if not connection:
        raise AnsibleError(f"{host}: unknown connection plugin {kind!r} (ansible_connection).")
    become = become_plugin(action, variables, templar)
    if become is not None:
        connection.set_become_plugin(become)
    task_keys = {**action._task.dump_attrs(), "timeout": play_context.timeout}
    if play_context.password:
        task_keys["password"] = play_context.password
    if become is not None and play_context.become_pass:
        task_keys["become_pass"] = play_context.become_pass
    plugins = [("connection", connection), ("shell", connection._shell)]
    if become is not None:
        plugins.append(("become", become))
    for category, plugin in plugins:
        names = constants.config.get_plugin_vars(category, plugin._load_name)
        options = {name: templar.template(variables[name]) for name in names if name in variables}
        plugin.set_options(task_keys=task_keys, var_options=options)
    if fresh and kind == "ssh":
        # ssh uses the first of two values, so this must precede the user's value.
        connection.set_option("ssh_args", f"{NOT_SHARED} {connection.get_option('ssh_args') or ''}".rstrip())
    connection._play_context = play_context.set_task_and_variable_override(
        task=action._task, variables=variables, templar=templar
    )
    wanted = str(
        templar.template(
            variables.get("ansible_python_interpreter", constants.config.get_config_value("INTERPRETER_PYTHON"))
        )
    )
    # "auto" and similar values cost a round trip. Every supported system has this path.
    interpreter = wanted if wanted.startswith("/") else DEFAULT_INTERPRETER
    return NodeConnection(host, connection, interpreter)


def become_plugin(action: ActionBase, variables: Mapping[str, Any], templar: Any) -> Any:
    request = variables.get("ansible_become")
    if not (boolean(templar.template(request)) if request is not None else action._task.become):
        return None
    name = templar.template(variables.get("ansible_become_method", action._task.become_method))
    plugin = action._shared_loader_obj.become_loader.get(name)
    if plugin is None:
        raise AnsibleError(f"Unknown become plugin {name!r} (ansible_become_method).")
    return plugin
