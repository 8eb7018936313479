"""Takes a snapshot of a launch on one node before the launch is stopped: the ranks, and the listeners on its ports."""

from __future__ import annotations

import os
import time
from typing import Any

from ..launch import state, written
from ..tools import control_group, files, process
from ..tools.as_user import SilentError, as_user
from . import hook, observed, shots, sockets
from .parts import Parts, UnseenError

Json = dict[str, Any]

RANKS_SECONDS, LISTENERS_SECONDS = 2.0, 0.7
MOST_LISTENERS = 16
MOST_HALF_OPEN = 64
MOST_COMMAND = 200  # characters


def snapshot(request: Json) -> Json:
    """Return a Snapshot (muster/diagnosis/evidence.py). request: {launch_id, run_dir, ports}."""
    parts = Parts()
    at = time.time()
    parts.look("ranks", lambda: ranks(request), {"ranks": [], "left": []})
    parts.found.update(parts.found["ranks"])
    parts.look("listeners", lambda: as_user(None, lambda: listeners(request["ports"]), seconds=LISTENERS_SECONDS), [])
    parts.look("half_open", lambda: half_open(request["ports"]), None)
    parts.look("frozen", lambda: frozen(request["launch_id"]), None)
    if os.geteuid() != 0:
        parts.leave("others", "only root can see the processes of other users' listeners")
    return {"at": at, **parts.found, "unseen": parts.unseen}


def ranks(request: Json) -> Json:
    """Return {ranks, left}; left: processes of the launch that still run. Must run as the training user, who owns the
    rank table and the logs."""
    table = written.read_table(request["launch_id"])["ranks"]
    try:
        found: Json = written.in_its_name(request, lambda: _ranks(request, table), RANKS_SECONDS)
    except SilentError as silent:
        raise UnseenError(f"failed as the training user: {silent.strerror}") from None
    return found


def _ranks(request: Json, table: list[Json]) -> Json:
    theirs = [rank for rank in table if rank["gone_at"] is None and process.user_id(rank["pid"]) == os.getuid()]
    folder = f"{state.state_dir(request['launch_id'])}/{hook.SOCKETS}"
    found = shots.shots(theirs, shots.last_words(request["run_dir"]), lambda pids: observed.all_observed(pids, folder))
    return {"ranks": found, "left": observed.left(table, folder)}


def frozen(launch_id: str) -> bool | None:
    """Return whether the launch's control group is frozen. The main process in the rank table identifies the group."""
    agent = written.read_table(launch_id)["agent"]
    if agent is None or not process.runs(agent["pid"], agent["started"]):
        raise UnseenError("the main process has exited")
    try:
        found: bool | None = control_group.unit_facts(agent["pid"])["frozen"]
    except LookupError as why:
        raise UnseenError(str(why)) from None
    return found


def listeners(ports: list[int]) -> list[Json]:
    """Return the listeners on these ports; see Listener. This can block while the command line of a process is read."""
    there = {
        each.inode: each for each in sockets.connections() if each.state == sockets.LISTEN and each.local[1] in ports
    }
    owners: dict[int, list[tuple[int, int]]] = {inode: [] for inode in there}
    links = {f"socket:[{inode}]": inode for inode in there}
    for pid in process.ids() if there else ():
        for link in links.keys() & process.opened(pid):
            if seen := process.status(pid):
                owners[links[link]].append((seen.started, pid))
    # Of the processes with the socket open, the oldest opened it, and the others inherited it.
    return [listener(there[inode], min(who, default=(0, 0))[1]) for inode, who in list(owners.items())[:MOST_LISTENERS]]


def half_open(ports: list[int]) -> list[str]:
    """Return the peers of half-open connections to these ports: the peer has not acknowledged the SYN-ACK."""
    calls = (each for each in sockets.connections() if each.state in sockets.COMING and each.local[1] in ports)
    return list(dict.fromkeys(each.peer[0] for each in calls))[:MOST_HALF_OPEN]


def listener(each: sockets.Connection, pid: int) -> Json:
    who = process.who(pid) if pid else {"command": "", "unit": ""}
    age = process.age(pid) if pid else None
    return {
        "port": each.local[1],
        "address": each.local[0],
        "pid": pid,
        "user": files.user_name(each.uid),
        "command": who["command"][:MOST_COMMAND],
        "unit": who["unit"],
        "started": 0 if age is None else time.time() - age,
    }
