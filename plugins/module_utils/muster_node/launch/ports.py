"""Whether a port is free to listen on, and who holds it."""

from __future__ import annotations

import os
import time
from typing import Any

from ..tools import files, process
from ..tools.sockets import LISTENING, can_listen, sockets
from .seats import HOLDERS_SECONDS, NOT_SEEN, holders

Json = dict[str, Any]


def port_facts(port: int) -> Json:
    """Is the port free to listen on, as the rendezvous store will (wildcard address)? If not, who holds it."""
    return {"port": port, "free": can_listen(port), "holders": port_holders(port)}


def port_holders(port: int) -> list[Json]:
    """Processes that listen on the port, or else talk from it."""
    here = [one for one in sockets() if one.port == port and one.inode != "0"]
    here = [one for one in here if one.state == LISTENING] or here
    if not here:
        return []
    inodes = {f"socket:[{one.inode}]" for one in here}
    deadline = time.monotonic() + HOLDERS_SECONDS
    pids = [pid for pid in process.ids() if inodes & process.opened(pid)]
    return holders(pids, deadline) or (by_user({one.uid for one in here}, deadline) if os.geteuid() else [NOT_SEEN])


def by_user(uids: set[int], deadline: float) -> list[Json]:
    """Who it may be, where only root is told: the first process of each launch of these users, or else the users."""
    first: dict[process.LaunchUnit, int] = {}
    for pid in process.ids():
        launch = process.launch_at(pid)
        if launch and launch not in first and process.user_id(pid) in uids:
            first[launch] = pid
    return holders(first.values(), deadline) or [{**NOT_SEEN, "user": files.user_name(uid)} for uid in sorted(uids)]
