"""Lists TCP connections and listeners of this node, read from netlink (like ss) or else from /proc."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from ..tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h, net/tcp_states.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP = 4, 20, 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
ALL_STATES = 0xFFFFFFFF
HEADER, REQUEST, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBxI48x"), struct.Struct("=HH")
MESSAGE = struct.Struct("=4B2s2s16s16sI2I5I")
RETRANSMITS, LAST_RECEIVED = 2, 52  # places in tcp_info: a byte, and milliseconds
STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT"),
    *("LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
LISTEN = "LISTEN"
COMING = ("SYN_RECV", "NEW_SYN_RECV")
NOT_BEGUN = ("SYN_SENT", *COMING)
SECONDS = 0.5
BUFFER = 1 << 16
TABLES = {"/proc/net/tcp": socket.AF_INET, "/proc/net/tcp6": socket.AF_INET6}
MOST = 16_000_000  # bytes of one of them


class Connection(NamedTuple):
    """A TCP connection. local, peer: address and port. queued: unacknowledged bytes. retransmits: consecutive
    retransmissions. idle: seconds."""

    inode: int
    uid: int
    state: str
    local: tuple[str, int]
    peer: tuple[str, int]
    queued: int
    retransmits: int
    idle: float | None


def connections() -> list[Connection]:
    """Return the connections that can be read within the time limit. Raises OSError."""
    until = time.monotonic() + SECONDS
    try:
        return [each for family in (socket.AF_INET, socket.AF_INET6) for each in asked(family, until)]
    except OSError:  # a kernel without the module, or a container that may not load it
        return [each for path, family in TABLES.items() for each in table(files.text(path, most=MOST) or "", family)]


def asked(family: int, until: float) -> Iterator[Connection]:
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), ALL_STATES)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as sock:
        sock.settimeout(SECONDS)
        flags = NLM_F_REQUEST | NLM_F_DUMP
        sock.sendto(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, flags, 1, 0) + body, (0, 0))
        while time.monotonic() < until:
            said = sock.recv(BUFFER)
            place = 0
            while place + HEADER.size <= len(said):
                length, kind, *_ = HEADER.unpack_from(said, place)
                if kind == NLMSG_DONE or length < HEADER.size:
                    return
                if kind == NLMSG_ERROR:
                    raise OSError(
                        -struct.unpack_from("=i", said, place + HEADER.size)[0], "the kernel rejected the socket query"
                    )
                yield one(said[place + HEADER.size : place + length])
                place += (length + 3) & ~3


def one(body: bytes) -> Connection:
    family, state, _, retransmits, sport, dport, source, target, *rest = MESSAGE.unpack_from(body)
    uid, inode = rest[-2:]
    info = attribute(body[MESSAGE.size :], INET_DIAG_INFO)
    name = STATES[state] if state < len(STATES) else str(state)
    idle = None
    if len(info) >= LAST_RECEIVED + 4 and name not in (LISTEN, *NOT_BEGUN):
        retransmits = info[RETRANSMITS]
        idle = struct.unpack_from("=I", info, LAST_RECEIVED)[0] / 1000
    ends = [(address(family, where), int.from_bytes(port, "big")) for where, port in ((source, sport), (target, dport))]
    return Connection(inode, uid, name, ends[0], ends[1], rest[-3], retransmits, idle)


def attribute(said: bytes, wanted: int) -> bytes:
    place = 0
    while place + ATTRIBUTE.size <= len(said):
        length, kind = ATTRIBUTE.unpack_from(said, place)
        if length < ATTRIBUTE.size:
            break
        if kind == wanted:
            return said[place + ATTRIBUTE.size : place + length]
        place += (length + 3) & ~3
    return b""


def address(family: int, where: bytes) -> str:
    text = socket.inet_ntop(family, where[:4] if family == socket.AF_INET else where)
    return text.removeprefix("::ffff:") if "." in text else text


def table(text: str, family: int) -> Iterator[Connection]:
    """Parse a table of /proc/net. Its addresses consist of 32-bit words in the machine's byte order."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 10:
            continue
        state = int(words[3], 16)
        ends = []
        for end in words[1:3]:
            where, _, port = end.partition(":")
            numbers = [int(where[place : place + 8], 16) for place in range(0, len(where), 8)]
            ends.append((address(family, struct.pack(f"={len(numbers)}I", *numbers)), int(port, 16)))
        queued = int(words[4].partition(":")[0], 16)
        name = STATES[state] if state < len(STATES) else str(state)
        yield Connection(int(words[9]), int(words[7]), name, ends[0], ends[1], queued, int(words[6], 16), None)
