"""TCP ports of this node: tests whether a port is free, and reads the kernel's list of sockets."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, NamedTuple

from . import files

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTENING, HALF_OPEN = "0A", "03"
MOST = 64_000_000  # bytes of the kernel's list


class TcpSocket(NamedTuple):
    """A TCP socket. state: the kernel's number, such as LISTENING. inode: "0" if no process has the socket. uid: owner
    of the socket."""

    port: int
    state: str
    inode: str
    uid: int = 0


def can_listen(port: int) -> bool:
    """Return whether the port is free on the wildcard address, where programs such as the rendezvous store listen."""
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", port))
                sock.listen(1)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                return False
            # no IPv6: the IPv4 result decides
    return True


def sockets() -> Iterator[TcpSocket]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (files.text(table, most=MOST) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9:
                yield TcpSocket(int(fields[1].rpartition(":")[2], 16), fields[3], fields[9], int(fields[7]))
