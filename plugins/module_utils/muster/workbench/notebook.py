"""What is said about somebody's notebook, and the line of ssh that leads there: pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WISHES = {"started": True, "stopped": False}


@dataclass(frozen=True)
class Way:
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


def changes(seen: Mapping[str, Any], state: str, at_boot: bool) -> bool:
    """Whether something would change."""
    if state not in WISHES:
        return False
    running = WISHES[state]
    return bool(seen["running"] != running or seen["at_boot"] != (running and at_boot))


def tunnel(way: Way, user: str, socket: str, port: int) -> str:
    return shlex.join(["ssh", "-N", "-L", f"{port}:{socket}", *way.arguments, f"{user}@{way.host}"])


def token(way: Way, user: str, file: str) -> str:
    return shlex.join(["ssh", *way.arguments, f"{user}@{way.host}", "cat", file])


def said_last(node: str, seen: Mapping[str, Any], way: str, *, checked: bool) -> str:
    """The last line of the run. way: the line of ssh that leads there. checked: seen before what is left undone."""
    begin = f"the notebook of {seen['user']} on {node}"
    if checked:
        return f"{begin} is {'stopped' if seen['running'] else 'started'}"
    if not seen["running"]:
        return f"{begin} does not run"
    if not seen["answers"]:
        return f"{begin} runs, and does not answer"
    return f"{begin} runs; to reach it: {way}" if way else f"{begin} runs"


def lines(node: str, seen: Mapping[str, Any], way: Way | None, port: int) -> list[str]:
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
