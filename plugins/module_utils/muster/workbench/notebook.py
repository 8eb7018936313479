"""Messages about the notebook of a user, and the ssh command that connects to it. Pure functions."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.commands import playbook
from ..verdict.foreign import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WISHES = {"started": True, "stopped": False}
# Parts of a node's answer become part of commands that users run on their own machine, so each part is validated.
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)
SOCKET = re.compile(r"/run/user/[0-9]{1,10}/muster-notebook/socket", re.ASCII)
MOST_SHOWN = 100  # characters
DISTRUST = "The response was discarded. Check the node, because Muster's program never returns such values."
FLAGS = ("running", "answers", "at_boot")


class AnswerError(Exception):
    """Why the answer of a node was rejected, as a sentence."""


class Notebook(TypedDict):
    """The validated answer of a node. token_file: path derived from the inventory."""

    user: str
    running: bool
    answers: bool
    at_boot: bool
    socket: str
    token_file: str


@dataclass(frozen=True)
class SshAccess:
    """How to connect to a node. arguments: arguments for ssh, including jump hosts but not the user."""

    host: str
    arguments: tuple[str, ...] = ()


def problem(nodes: Sequence[str], known: Sequence[str], wanted: str, port: int) -> str:
    """Return why a notebook cannot be started; "" if it can be started."""
    if not nodes:
        return (
            "No node has JupyterLab. Add nodes to workbench_nodes, and run"
            f" {playbook('site.yml', tags='launch_users,workbench')}."
        )
    if wanted and wanted not in nodes:
        return f"{wanted} is not in workbench_nodes ({', '.join(nodes)})."
    if (wanted or nodes[0]) not in known:
        return f"{wanted or nodes[0]} is in workbench_nodes but not in gpu_nodes."
    if not 1 <= port <= 65535:
        return f"notebook_port is {port}, but must be between 1 and 65535."
    return ""


def read(node: str, answer: Mapping[str, Any], user: str, users_root: str) -> Notebook:
    """Validate the answer of a node. user: the requested user; "" for the login user. Raises AnswerError."""
    found = answer.get("user")
    if user and found != user:
        raise AnswerError(f"{node} returned the user {shown(found)} instead of {user}. {DISTRUST}")
    if not isinstance(found, str) or not USER.fullmatch(found):
        raise AnswerError(f"{node} returned the invalid user name {shown(found)}. {DISTRUST}")
    socket = answer.get("socket")
    if not isinstance(socket, str) or not SOCKET.fullmatch(socket):
        raise AnswerError(f"{node} returned the invalid notebook socket {shown(socket)}. {DISTRUST}")
    flags = {name: answer.get(name) for name in FLAGS}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise AnswerError(f"{node} returned {shown(value)} for {name}, which must be a boolean. {DISTRUST}")
    return {
        "user": found,
        "running": flags["running"] is True,
        "answers": flags["answers"] is True,
        "at_boot": flags["at_boot"] is True,
        "socket": socket,
        "token_file": f"{users_root}/{found}/notebook/token",
    }


def shown(value: Any) -> str:
    return quote(str(value)[:MOST_SHOWN])


def changes(seen: Notebook, state: str, at_boot: bool) -> bool:
    if state not in WISHES:
        return False
    running = WISHES[state]
    return bool(seen["running"] != running or seen["at_boot"] != (running and at_boot))


def tunnel(way: SshAccess, user: str, socket: str, port: int) -> str:
    return shlex.join(["ssh", "-N", "-L", f"{port}:{socket}", *way.arguments, "--", f"{user}@{way.host}"])


def token(way: SshAccess, user: str, file: str) -> str:
    return shlex.join(["ssh", *way.arguments, "--", f"{user}@{way.host}", "cat", shlex.quote(file)])


def said_last(node: str, seen: Notebook, way: str, *, checked: bool) -> str:
    """Return the last line of the output.

    way: the ssh command that connects to the notebook. checked: whether this is check mode.
    """
    begin = f"the notebook of {seen['user']} on {node}"
    if checked:
        return f"{begin} would be {'stopped' if seen['running'] else 'started'}"
    if not seen["running"]:
        return f"{begin} is not running"
    if not seen["answers"]:
        return f"{begin} is running but does not respond"
    return f"{begin} is running; to connect: {way}" if way else f"{begin} is running"


def lines(node: str, seen: Notebook, way: SshAccess | None, port: int) -> list[str]:
    user, begin = seen["user"], f"The notebook of {seen['user']} on {node}"
    if not seen["running"]:
        start = playbook("playbooks/notebook.yml", notebook_user=user, notebook_state="started")
        return [f"{begin} is not running. To start it: {start}"]
    if not seen["answers"]:
        return [f"{begin} is running but does not respond. Its log: journalctl --user --unit muster-notebook"]
    often = "and starts again after a reboot" if seen["at_boot"] else "until it is stopped or the node reboots"
    found = [f"{begin} is running {often}."]
    if way is None:
        return [*found, f"It listens on {seen['socket']}."]
    return [
        *found,
        f"  Tunnel, as {user}: {tunnel(way, user, seen['socket'], port)}",
        f"  Then open:    http://localhost:{port}/lab  and, for TensorBoard, http://localhost:{port}/tensorboard/",
        f"  Token:        {token(way, user, seen['token_file'])}",
    ]
