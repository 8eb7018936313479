"""Ranks and agents of torchrun that live on this node, whosever they are, and who holds a port."""

from __future__ import annotations

import os
import pwd
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.run import names, read

if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCH_UNIT = re.compile(r"muster-launch-(\S+?)\.service")
MARKS = ("MUSTER_LAUNCH_ID", "TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
AGENT = re.compile(r"(^|/)torchrun$|^torch\.distributed\.(run|launch)$")


def look(listeners: Mapping[str, str], port: int) -> dict[str, Any]:
    """listeners: the look at them. port: that of the rendezvous, of which is said who holds it."""
    boot = time.time() - float((read("/proc/uptime").text.split() or ["0"])[0])
    found = [seen for pid in filter(str.isdigit, names("/proc")) if (seen := process(int(pid), boot))]
    return {"processes": found, "saw_all": os.geteuid() == 0, "port_holders": holders(listeners["ss"], port)}


def process(pid: int, boot: float) -> dict[str, Any] | None:
    """Return what is known of a rank or an agent, and nothing of every other process."""
    marks = environment(pid)
    words = read(f"/proc/{pid}/cmdline").text.split("\0")
    agent = any(AGENT.search(word) for word in words[:4])
    rank = "RANK" in marks and ("TORCHELASTIC_RUN_ID" in marks or "MASTER_PORT" in marks)
    if not (agent or rank or "MUSTER_LAUNCH_ID" in marks):
        return None
    # The name stands in brackets, and may hold anything; the state is the first word after it.
    status = read(f"/proc/{pid}/stat").text.rpartition(")")[2].split()
    if len(status) < 20:
        return None
    unit = LAUNCH_UNIT.search(read(f"/proc/{pid}/cgroup").text)
    return {
        "pid": pid,
        "parent": int(status[1]),
        "parent_name": read(f"/proc/{status[1]}/comm").text.strip(),
        "state": status[0],
        "age": round(time.time() - boot - int(status[19]) / os.sysconf("SC_CLK_TCK")),
        "user": owner(pid),
        "command": " ".join(filter(None, words))[:200],
        "agent": agent,
        "rank": marks.get("RANK", "") if rank else "",
        "run": marks.get("MUSTER_LAUNCH_ID") or marks.get("TORCHELASTIC_RUN_ID", ""),
        "port": marks.get("MASTER_PORT", ""),
        "launch": unit[1] if unit else "",
    }


def environment(pid: int) -> dict[str, str]:
    """Return the marks of torchrun in a process's environment; others' may be seen by root alone."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode("utf-8", "replace").partition("=") for item in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name in MARKS}


def owner(pid: int) -> str:
    try:
        number = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def holders(listeners: str, port: int) -> list[dict[str, Any]]:
    """Return who listens on a port, as far as ss may see it; listeners: what it printed."""
    pids = {
        int(pid)
        for line in listeners.splitlines()
        if line.startswith("tcp") and re.search(rf":{port}\s", line)
        for pid in re.findall(r"pid=(\d+)", line)
    }
    return [who(pid) for pid in sorted(pids)]


def who(pid: int) -> dict[str, Any]:
    """Return who one process is, for a sentence."""
    unit = ""
    for line in read(f"/proc/{pid}/cgroup").text.splitlines():
        leaf = line.rsplit("/", 1)[-1]
        if leaf.endswith((".service", ".scope")):
            unit = leaf
    command = " ".join(filter(None, read(f"/proc/{pid}/cmdline").text.split("\0")))
    return {"pid": pid, "user": owner(pid), "command": command[:200], "unit": unit}
