"""Whether a port is free to listen on, and who holds it."""

from __future__ import annotations

import errno
import socket
from typing import Any

from ..tools import files, process
from .seats import NOT_SEEN, holder

Json = dict[str, Any]

MOST_SOCKETS = 64_000_000  # bytes of the kernel's list of sockets


def port_facts(port: int) -> Json:
    """Is the port free to listen on, as the rendezvous store will (wildcard address)? If not, who holds it."""
    return {"port": port, "free": can_listen(port), "holders": port_holders(port)}


def can_listen(port: int) -> bool:
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", port))
                sock.listen(1)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                return False
            # no IPv6 here: the IPv4 answer decides
    return True


def port_holders(port: int) -> list[Json]:
    """Processes that listen on the port, or else talk from it."""
    listening: set[str] = set()
    talking: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (files.text(table, most=MOST_SOCKETS) or "").splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rsplit(":", 1)[1], 16) == port and fields[9] != "0":
                (listening if fields[3] == "0A" else talking).add(f"socket:[{fields[9]}]")
    inodes = listening or talking
    if not inodes:
        return []
    return [holder(pid) for pid in process.ids() if inodes & process.opened(pid)] or [NOT_SEEN]
