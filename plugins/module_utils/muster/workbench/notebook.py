"""What is said about somebody's notebook, and the line of ssh that leads there: pure."""

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
# What a node answers stands in lines that people run on their own machine: each part has one form, and no other.
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)
SOCKET = re.compile(r"/run/user/[0-9]{1,10}/muster-notebook/socket", re.ASCII)
MOST_SHOWN = 100  # characters
DISTRUST = "The answer is not used: check the node, because Muster's own program does not write that."
FLAGS = ("running", "answers", "at_boot")


class AnswerError(Exception):
    """Why a node's answer is not used, as a sentence."""


class Notebook(TypedDict):
    """What a node answered, after it was checked; token_file is where the inventory has it."""

    user: str
    running: bool
    answers: bool
    at_boot: bool
    socket: str
    token_file: str


@dataclass(frozen=True)
class SshAccess:
    """How somebody gets to a node. arguments: of ssh, with the bastions; without who logs in."""

    host: str
    arguments: tuple[str, ...] = ()


def problem(nodes: Sequence[str], known: Sequence[str], wanted: str, port: int) -> str:
    """Why there can be no notebook; nothing where there can."""
    if not nodes:
        return (
            "No node has JupyterLab. Name nodes in workbench_nodes, and run"
            f" {playbook('site.yml', tags='launch_users,workbench')}."
        )
    if wanted and wanted not in nodes:
        return f"{wanted} is not in workbench_nodes, which has {', '.join(nodes)}."
    if (wanted or nodes[0]) not in known:
        return f"{wanted or nodes[0]} is in workbench_nodes, and not in gpu_nodes."
    if not 1 <= port <= 65535:
        return f"notebook_port is {port}, and a port is 1 to 65535."
    return ""


def read(node: str, answer: Mapping[str, Any], user: str, users_root: str) -> Notebook:
    """Check a node's answer. user: who was asked for; empty for who logs in. Raises AnswerError."""
    found = answer.get("user")
    if user and found != user:
        raise AnswerError(f"{node} answered for the user {shown(found)}, and {user} was asked for. {DISTRUST}")
    if not isinstance(found, str) or not USER.fullmatch(found):
        raise AnswerError(f"{node} answered with the user {shown(found)}, which is no name of one. {DISTRUST}")
    socket = answer.get("socket")
    if not isinstance(socket, str) or not SOCKET.fullmatch(socket):
        raise AnswerError(f"{node} answered with the socket {shown(socket)}, which is no notebook's. {DISTRUST}")
    flags = {name: answer.get(name) for name in FLAGS}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise AnswerError(f"{node} answered {name} with {shown(value)}, which is neither yes nor no. {DISTRUST}")
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
    """Whether something would change."""
    if state not in WISHES:
        return False
    running = WISHES[state]
    return bool(seen["running"] != running or seen["at_boot"] != (running and at_boot))


def tunnel(way: SshAccess, user: str, socket: str, port: int) -> str:
    return shlex.join(["ssh", "-N", "-L", f"{port}:{socket}", *way.arguments, "--", f"{user}@{way.host}"])


def token(way: SshAccess, user: str, file: str) -> str:
    return shlex.join(["ssh", *way.arguments, "--", f"{user}@{way.host}", "cat", shlex.quote(file)])


def said_last(node: str, seen: Notebook, way: str, *, checked: bool) -> str:
    """The last line of the run. way: the line of ssh that leads there. checked: seen before what is left undone."""
    begin = f"the notebook of {seen['user']} on {node}"
    if checked:
        return f"{begin} is {'stopped' if seen['running'] else 'started'}"
    if not seen["running"]:
        return f"{begin} does not run"
    if not seen["answers"]:
        return f"{begin} runs, and does not answer"
    return f"{begin} runs; to reach it: {way}" if way else f"{begin} runs"


def lines(node: str, seen: Notebook, way: SshAccess | None, port: int) -> list[str]:
    user, begin = seen["user"], f"The notebook of {seen['user']} on {node}"
    if not seen["running"]:
        start = playbook("playbooks/notebook.yml", notebook_user=user, notebook_state="started")
        return [f"{begin} does not run. To start it: {start}"]
    if not seen["answers"]:
        return [f"{begin} runs, and does not answer. See what it says there: journalctl --user --unit muster-notebook"]
    often = "also after a restart of the node" if seen["at_boot"] else "until it is ended, or the node restarts"
    found = [f"{begin} runs, {often}."]
    if way is None:
        return [*found, f"It listens on {seen['socket']}."]
    return [
        *found,
        f"  The way to it, for {user}: {tunnel(way, user, seen['socket'], port)}",
        f"  Then open:            http://localhost:{port}/lab  and, for TensorBoard, http://localhost:{port}/tensorboard/",
        f"  Its token:            {token(way, user, seen['token_file'])}",
    ]
