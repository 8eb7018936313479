"""Reads the kernel's routes and neighbors without the program ip."""

from __future__ import annotations

import ipaddress
import socket
import struct

from . import files

# linux/netlink.h and linux/rtnetlink.h
RTM_GETROUTE, RTM_NEWROUTE, NLM_F_REQUEST = 26, 24, 1
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
HEADER, ROUTE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=8BI"), struct.Struct("=HH")
SECONDS = 1.0


def route(address: str) -> dict[str, str]:
    """Return {way, gateway} of the route to an address, like `ip route get`: the interface and the next hop; "" if
    there is none."""
    try:
        to = ipaddress.ip_address(address)
        family = socket.AF_INET if to.version == 4 else socket.AF_INET6
        route = ROUTE.pack(family, to.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
        body = route + ATTRIBUTE.pack(ATTRIBUTE.size + len(to.packed), RTA_DST) + to.packed
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
            sock.settimeout(SECONDS)
            sock.sendto(HEADER.pack(HEADER.size + len(body), RTM_GETROUTE, NLM_F_REQUEST, 1, 0) + body, (0, 0))
            return route_in(sock.recv(8192))
    except (OSError, ValueError, struct.error):
        return {"way": "", "gateway": ""}


def route_in(said: bytes) -> dict[str, str]:
    found = {"way": "", "gateway": ""}
    length, kind, *_ = HEADER.unpack_from(said)
    at = HEADER.size + ROUTE.size
    while kind == RTM_NEWROUTE and at + ATTRIBUTE.size <= length:
        size, name = ATTRIBUTE.unpack_from(said, at)
        if name == RTA_OIF:
            found["way"] = socket.if_indextoname(struct.unpack_from("=I", said, at + ATTRIBUTE.size)[0])
        elif name == RTA_GATEWAY:
            found["gateway"] = str(ipaddress.ip_address(said[at + ATTRIBUTE.size : at + size]))
        at += max((size + 3) & ~3, ATTRIBUTE.size)
    return found


def neighbour(address: str) -> dict[str, str]:
    """Return {neighbour, hardware} of an address: the state of the kernel's entry ("known", "failed" if no host has the
    address, or "" if unknown), and its hardware address."""
    for line in (files.text("/proc/net/arp") or "").splitlines()[1:]:
        fields = line.split()
        if fields and fields[0] == address:
            known = int(fields[2], 16) & 2
            return {"neighbour": "known" if known else "failed", "hardware": fields[3] if known else ""}
    return {"neighbour": "", "hardware": ""}
