"""Ranks and torchrun agents of all users on this node, and the processes that listen on a port."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from ..tools import process
from ..tools.as_user import SilentError, as_user
from ..tools.run import read

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 10.0
AGENT = re.compile(r"(^|/)torchrun$|^torch\.distributed\.(run|launch)$")


def look(listeners: Mapping[str, str], port: int) -> dict[str, Any]:
    """Return the processes. listeners: data from listeners.py. port: rendezvous port. The result's `why` is the reason
    for a failure.

    The work is done in a forked process, because reading the command line of another process can block forever. Because
    of the fork, no other thread must be running.
    """
    try:
        seen: dict[str, Any] = as_user(None, lambda: collected(listeners["ss"], port), seconds=SECONDS)
    except SilentError as silent:
        why = f"the processes could not be read: {silent.strerror}"
        return {"processes": [], "saw_all": False, "port_holders": [], "why": why}
    return seen


def collected(listeners: str, port: int) -> dict[str, Any]:
    boot = time.time() - float((read("/proc/uptime").text.split() or ["0"])[0])
    found = [seen for pid in process.ids() if (seen := training(pid, boot))]
    return {"processes": found, "saw_all": os.geteuid() == 0, "port_holders": holders(listeners, port), "why": ""}


def training(pid: int, boot: float) -> dict[str, Any] | None:
    """Return a description of a rank or agent; None for other processes."""
    marks = process.environment(pid)
    words = process.words(pid)
    agent = any(AGENT.search(word) for word in words[:4])
    rank = "RANK" in marks and ("TORCHELASTIC_RUN_ID" in marks or "MASTER_PORT" in marks)
    if not (agent or rank or process.LAUNCH_MARK in marks):
        return None
    status = process.status(pid)
    if status is None:
        return None
    return {
        "pid": pid,
        "parent": status.parent,
        "parent_name": process.read(status.parent, "comm").strip(),
        "state": status.state,
        "age": round(time.time() - boot - status.started / process.TICKS),
        "user": process.owner(pid),
        "command": " ".join(words)[: process.MOST_COMMAND],
        "agent": agent,
        "rank": marks.get("RANK", "") if rank else "",
        "run": marks.get(process.LAUNCH_MARK) or marks.get("TORCHELASTIC_RUN_ID", ""),
        "port": marks.get("MASTER_PORT", ""),
        "launch": launch.id if (launch := process.launch_at(pid)) else "",
    }


def holders(listeners: str, port: int) -> list[dict[str, Any]]:
    """Return the processes that listen on a port, as far as ss can see them. listeners: output of ss."""
    pids = {
        int(pid)
        for line in listeners.splitlines()
        if line.startswith("tcp") and re.search(rf":{port}\s", line)
        for pid in re.findall(r"pid=(\d+)", line)
    }
    return [process.who(pid) for pid in sorted(pids)]
