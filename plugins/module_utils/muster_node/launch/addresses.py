"""Which interface of this node carries an address."""

from __future__ import annotations

import fcntl
import json
import socket
import struct

from ..tools import files
from ..tools.run import run as command

SIOCGIFADDR = 0x8915


def interface_of(address: str) -> str | None:
    """Name of the interface that carries this address, or None."""
    if ":" in address:
        return interface_of_ipv6(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return secondary_interface_of(address)


def secondary_interface_of(address: str) -> str | None:
    """The ioctl above returns only an interface's first address; `ip` knows the others."""
    try:
        links = json.loads(command("ip", "-json", "address", "show").text)
    except ValueError:
        return None
    for link in links:
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    return None


def interface_of_ipv6(address: str) -> str | None:
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    for line in (files.text("/proc/net/if_inet6") or "").splitlines():
        fields = line.split()
        if fields and fields[0] == wanted:
            return fields[5]
    return None
