"""The TCP connections of this process and the interfaces that carry them, from its own /proc: no right is needed."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

ESTABLISHED = "01"
SIOCGIFADDR = 0x8915  # linux/sockios.h


def own_inodes() -> set[str]:
    """The socket inodes among this process's descriptors."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, such as that of the listing itself
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def endpoint(text: str) -> tuple[str, int]:
    """An end as /proc/net/tcp and tcp6 have it: each four bytes of the address in the processor's order."""
    address, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    return plain(packed), int(port, 16)


def plain(packed: bytes) -> str:
    whole = ipaddress.ip_address(packed)
    four = getattr(whole, "ipv4_mapped", None)
    return str(four or whole)


def connections(table: str, inodes: set[str]) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """(own end, other end) of the established ones. table: text of /proc/self/net/tcp or tcp6."""
    found = []
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[3] == ESTABLISHED and words[9] in inodes:
            found.append((endpoint(words[1]), endpoint(words[2])))
    return found


def own_connections() -> list[tuple[tuple[str, int], tuple[str, int]]]:
    inodes = own_inodes()
    found = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):  # a kernel without IPv6
            found += connections(Path(f"/proc/self/net/{name}").read_text(encoding="ascii"), inodes)
    return found


def interfaces() -> dict[str, str]:
    """{address: interface}; one IPv4 address of each, and all of IPv6."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[socket.inet_ntoa(answer[20:24])] = name
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            words = line.split()
            found[plain(bytes.fromhex(words[0]))] = words[5]
    return found
