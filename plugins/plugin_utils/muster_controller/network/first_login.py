"""The first login on a machine of which nothing is known but its host key: through a shell, because Python may lack."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING

from ansible.errors import AnsibleError
from ansible.module_utils.common.text.converters import to_text

from muster.onboard import contact
from muster_controller.playbook.node_error import NodeError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster_controller.nodes.connection import NodeConnection

AT_ONCE = 32
MOST = 20_000  # characters of what a machine says
# Prints what contact.read reads, and changes nothing. $1 is the interpreter.
LOOK = r"""
LC_ALL=C; export LC_ALL
echo "muster.user $(id -un)"; echo "muster.uid $(id -u)"
echo "muster.python $("$1" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
for other in /usr/bin/python3.[0-9]* /usr/local/bin/python3.[0-9]*; do
  case $other in *config*|*'*'*) ;; *) echo "muster.other $other" ;; esac
done
said=$(sudo -n true 2>&1); code=$?
echo "muster.sudo $code"; echo "muster.said $said" | head -n 1
"""


def met(connections: Mapping[str, NodeConnection]) -> dict[str, str]:
    """Why each of these machines cannot be taken on, all of them asked at once; "" where one can."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Ansible keeps the current task in a context variable, which threads do not inherit.
        looks = {name: pool.submit(copy_context().run, _meet, one) for name, one in connections.items()}
        return {name: look.result() for name, look in looks.items()}


def _meet(node: NodeConnection) -> str:
    user = str(node.connection._play_context.remote_user or "")
    command = f"/bin/sh -c {shlex.quote(LOOK)} sh {shlex.quote(node.interpreter)}"
    try:
        code, out, err = node.connection.exec_command(command, in_data=None, sudoable=False)
    except AnsibleError as problem:
        return contact.not_reached(one_line(str(problem)), user)
    login = contact.read(to_text(out)[:MOST], node.interpreter)
    if login is None:
        said = one_line(to_text(err)) or one_line(to_text(out)) or "nothing"
        return f"its shell does not do what it is asked: it ended with code {code} and said: {said}"
    return contact.python_problem(login) or _root(node, login)


def _root(node: NodeConnection, login: contact.FirstLogin) -> str:
    """Whether root's Python runs, by the way that the inventory says: every step needs that."""
    try:
        code, out, err = node.python("-I -S -c 'import os; print(os.getuid())'", b"", privileged=True)
    except NodeError as problem:
        return contact.sudo_problem(login, str(problem))
    if code or out.strip() != "0":
        return contact.sudo_problem(login, one_line(err) or one_line(out) or f"it ended with code {code}")
    return ""
