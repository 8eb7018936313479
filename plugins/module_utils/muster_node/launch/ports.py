"""Whether a port is free to listen on, and who holds it."""

from __future__ import annotations

import time
from typing import Any

from ..tools import process
from ..tools.sockets import LISTENING, can_listen, sockets
from .seats import HOLDERS_SECONDS, NOT_SEEN, holders

Json = dict[str, Any]


def port_facts(port: int) -> Json:
    """Is the port free to listen on, as the rendezvous store will (wildcard address)? If not, who holds it."""
    return {"port": port, "free": can_listen(port), "holders": port_holders(port)}


def port_holders(port: int) -> list[Json]:
    """Processes that listen on the port, or else talk from it."""
    listening: set[str] = set()
    talking: set[str] = set()
    for one in sockets():
        if one.port == port and one.inode != "0":
            (listening if one.state == LISTENING else talking).add(f"socket:[{one.inode}]")
    inodes = listening or talking
    if not inodes:
        return []
    pids = [pid for pid in process.ids() if inodes & process.opened(pid)]
    return holders(pids, time.monotonic() + HOLDERS_SECONDS) or [NOT_SEEN]
