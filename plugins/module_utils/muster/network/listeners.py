"""Parse the listening sockets in the output of `ss -H -l -n -t -u -p`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

# Columns: protocol, state, two queues, local and peer address, and the owners visible to ss.
_LINE = re.compile(r"(?P<proto>tcp|udp)\s+\S+\s+\d+\s+\d+\s+(?P<local>\S+)\s+\S+(\s+users:\((?P<owners>.*)\))?\s*$")
# A process name may contain quotes, so it ends at the pid, not at the next quote.
_OWNER = re.compile(r'\("(?P<name>.*?)",pid=(?P<pid>\d+),fd=\d+\)')


@dataclass(frozen=True)
class ListeningSocket:
    """A listening socket.

    address: as printed by ss, without brackets and interface; "*" means IPv4 and IPv6. process: names of the owning
    processes; "" if not visible. pid: lowest PID with the first of these names. interface: set if the socket is bound
    to one interface.
    """

    proto: str
    address: str
    port: int
    process: str
    pid: int | None
    interface: str = ""

    @property
    def local_only(self) -> bool:
        """Whether only the node itself can connect to the socket."""
        if self.interface == "lo":
            return True
        return self.address != "*" and _ip(self.address).is_loopback


def parse_ss(text: str) -> list[ListeningSocket]:
    """Return the sockets in order. Other lines, such as banners and warnings, are ignored."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        host, _, port = match["local"].rpartition(":")
        # [fe80::1]%eth0 and 127.0.0.53%lo; older versions of ss print fe80::1%eth0.
        address, _, interface = host.replace("[", "").replace("]", "").partition("%")
        if not port.isdigit() or (address != "*" and not _is_ip(address)):
            continue
        process, pid = _owners(match["owners"] or "")
        found.append(ListeningSocket(match["proto"], address, int(port), process, pid, interface))
    return found


def _owners(text: str) -> tuple[str, int | None]:
    owners = [(match["name"], int(match["pid"])) for match in _OWNER.finditer(text)]
    if not owners:
        return "", None
    names = list(dict.fromkeys(name for name, _ in owners))
    return ", ".join(names), min(pid for name, pid in owners if name == names[0])


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
