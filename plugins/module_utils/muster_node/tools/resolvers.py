"""Checks whether name servers respond by sending a reverse lookup of an address to each server in one packet.

The content of the response is irrelevant; "no such name" counts as a response. Servers answer queries for private
addresses without internet access. The queried address is the network address, not a node address, because
systemd-resolved answers queries for this machine and for entries in /etc/hosts without asking its servers.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
import time

from . import files

CONF = "/etc/resolv.conf"
MOST = 3  # resolv.conf(5), MAXNS: the limit of the C library
SECONDS = 2.0
AT_ONCE = 0.5
TYPE_PTR, CLASS_IN, RECURSE = 12, 1, 0x0100
REFUSED = "refused"


def servers(conf: str) -> list[str]:
    words = [line.split() for line in conf.splitlines()]
    return [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"][:MOST]


def ask_all(address: str, conf: str = CONF, port: int = 53) -> dict[str, float | str | None]:
    """Query all servers in a resolv.conf, which is a link on systems with systemd-resolved.

    For each server, return the response time in seconds, "refused" after an immediate error, or None after a timeout.
    """
    found: dict[str, float | str | None] = dict.fromkeys(servers(files.text(conf, links=True) or ""))
    threads = [threading.Thread(target=_ask, args=(each, address, port, found), daemon=True) for each in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 0.2)
    return dict(found)


def _ask(server: str, address: str, port: int, found: dict[str, float | str | None]) -> None:
    began = time.monotonic()
    try:
        place = socket.getaddrinfo(server, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0]
        with socket.socket(place[0], socket.SOCK_DGRAM) as sock:
            sock.settimeout(SECONDS / 2)
            sock.connect(place[4])
            for _ in range(2):  # a packet may be lost
                mark = os.urandom(2)
                sock.send(question(mark, address))
                try:
                    while sock.recv(4096)[:2] != mark:
                        pass
                except TimeoutError:
                    continue
                found[server] = round(time.monotonic() - began, 3)
                return
    except (OSError, ValueError):
        # An immediate error causes no timeout for programs. A late one, such as of an absent host, does.
        found[server] = REFUSED if time.monotonic() - began < AT_ONCE else None


def question(mark: bytes, address: str) -> bytes:
    """Return a reverse lookup query for the network address of this address (RFC 1035, section 4)."""
    bits = 64 if ":" in address else 24
    network = ipaddress.ip_network((address, bits), strict=False).network_address
    labels = network.reverse_pointer.split(".")
    name = b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"
    return mark + struct.pack(">5H", RECURSE, 1, 0, 0, 0) + name + struct.pack(">2H", TYPE_PTR, CLASS_IN)
