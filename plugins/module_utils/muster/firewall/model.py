"""The requested firewall of a node, from the inventory: allowed ports, sources and peers."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


LEAST_EPHEMERAL = 1024
# A new connection may be slow, and is retried.
LEAST_CONFIRM_SECONDS = 30


class FirewallError(Exception):
    """An invalid or impossible request; the message is a sentence for the user."""


@dataclass(frozen=True)
class Allowed:
    """One entry of firewall_allow."""

    ports: tuple[int, int]
    protos: tuple[str, ...]
    sources: tuple[str, ...]
    comment: str


@dataclass(frozen=True)
class FirewallRequest:
    """The firewall requested for one node.

    leaves: whether the node leaves the cluster, so that Muster's rules are removed. cut: ports ("8080/tcp") and names
    (lower case) of services that may be blocked.
    """

    node: str
    address: str
    peers: Mapping[str, str]
    ephemeral: tuple[int, int]
    launch: tuple[int, int]
    master_port: int
    interface: str = ""
    backend: str = "auto"
    allowed: tuple[Allowed, ...] = ()
    cut: frozenset[str] = frozenset()
    tight: bool = False
    leaves: bool = False

    @property
    def launch_ports(self) -> tuple[tuple[int, int], ...]:
        """Port ranges open to other nodes in tight mode, sorted and without overlaps."""
        inside = self.launch[0] <= self.master_port <= self.launch[1]
        return tuple(sorted([self.launch, self.ephemeral] + ([] if inside else [(self.master_port,) * 2])))


@dataclass(frozen=True)
class Opening:
    """Traffic to allow. Empty ports mean all ports. An empty source or interface means any."""

    protos: tuple[str, ...]
    ports: tuple[tuple[int, int], ...]
    source: str
    interface: str
    comment: str


@dataclass(frozen=True)
class CutOff:
    """Packets that pass now and that the planned rules would block. cut: the entries of firewall_cut that waive them.
    why: why the run may block them; "" if they must be allowed or waived first. entries: the entries of firewall_allow
    that keep them, or else command: the command for the node that does.
    """

    in_words: str
    cut: Sequence[str]
    why: str
    entries: Sequence[str] = ()
    command: str = ""


def make_request(
    node: str, own: Mapping[str, Any], addresses: Mapping[str, str], options: Mapping[str, Any]
) -> FirewallRequest:
    """Return the requested firewall.

    own: the node's cluster_* variables. addresses: address of each node, by name. Raises FirewallError.
    """
    if options["confirm_seconds"] < LEAST_CONFIRM_SECONDS:
        raise FirewallError(
            f"firewall_confirm_seconds is too short for a new connection; the minimum is {LEAST_CONFIRM_SECONDS}."
        )
    leaves = options["mode"] == "leave"
    if leaves:
        addresses = {}
    ephemeral = port_pair("firewall_ephemeral_range", options["ephemeral_range"])
    launch = port_pair("firewall_launch_ports", options["launch_ports"])
    if options["tight"]:
        if ephemeral[0] < LEAST_EPHEMERAL:
            raise FirewallError(
                f"firewall_ephemeral_range starts below {LEAST_EPHEMERAL}, in the range of system ports."
            )
        master = own["cluster_master_port"]
        for name, (low, high) in (("firewall_launch_ports", launch), ("cluster_master_port", (master, master))):
            if low <= ephemeral[1] and high >= ephemeral[0]:
                raise FirewallError(
                    f"{name} overlaps with firewall_ephemeral_range, so any program might use a launch's port."
                )
    return FirewallRequest(
        node=node,
        address=str(ipaddress.ip_address(own["cluster_address"])),
        interface=own["cluster_interface"],
        peers={name: str(ipaddress.ip_address(address)) for name, address in addresses.items() if name != node},
        backend=options["backend"],
        allowed=tuple(_allowed(number, entry) for number, entry in enumerate(options["allow"], 1)),
        cut=frozenset(str(entry).strip().lower() for entry in options["cut"]),
        tight=options["tight"] and not leaves,
        leaves=leaves,
        ephemeral=ephemeral,
        launch=launch,
        master_port=own["cluster_master_port"],
    )


def port_pair(name: str, text: object) -> tuple[int, int]:
    """Return the first and last port of 9100 or "9100-9110". Raises FirewallError."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:[-:]\s*(\d+)\s*)?", str(text))
    if match is not None:
        low, high = int(match[1]), int(match[2] or match[1])
        if 1 <= low <= high <= 65535:
            return low, high
    raise FirewallError(f'{name} is {text!r}; use a port or a port range such as "29400-29599".')


def _allowed(number: int, entry: Mapping[str, Any]) -> Allowed:
    where = f"firewall_allow, entry {number}"
    unknown = sorted(set(entry) - {"port", "proto", "from", "comment"})
    if unknown:
        raise FirewallError(f"{where} has the unknown keys {', '.join(unknown)}. Use port, proto, from and comment.")
    if "port" not in entry:
        raise FirewallError(f"{where} has no port.")
    proto = str(entry.get("proto", "tcp")).lower()
    if proto not in ("tcp", "udp", "any"):
        raise FirewallError(f"{where}: proto is {proto!r}, not one of tcp, udp, any.")
    sources = entry.get("from") or []
    networks = []
    for source in [sources] if isinstance(sources, str) else sources:
        try:
            networks.append(_network(str(source)))
        except ValueError as exc:
            raise FirewallError(f"{where}: from has {source!r}, which is neither an address nor a network.") from exc
    return Allowed(
        ports=port_pair(f"{where}: port", entry["port"]),
        protos=("tcp", "udp") if proto == "any" else (proto,),
        sources=tuple(networks),
        comment=" ".join(str(entry.get("comment") or "allowed").split()),
    )


def _network(text: str) -> str:
    """Return a source in ufw's notation: no mask for a single address, "" for any source."""
    if text == "any":
        return ""
    parsed = ipaddress.ip_network(text, strict=False)
    if parsed.prefixlen == 0:
        return "0.0.0.0/0" if parsed.version == 4 else "::/0"
    return str(parsed.network_address) if parsed.num_addresses == 1 else str(parsed)
