"""Whether a node has its training address where the inventory says, and reaches its peers from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding
    from .facts import InspectedNode

INTERFACE_MISSING = Check(
    "net.interface.missing",
    seen="sandbox",
    reads="/sys/class/net",
    fires="the node has no interface of the name cluster_interface (fail)",
    fix="Correct it, or leave cluster_interface empty to take the one that has cluster_address",
)
ADDRESS_MISSING = Check(
    "net.address.missing",
    seen="sandbox",
    reads="ip -json addr",
    fires="no interface has cluster_address (fail)",
    fix="Set cluster_address to an address of the node",
)
INTERFACE_OTHER = Check(
    "net.interface.other",
    seen="sandbox",
    reads="ip -json addr",
    fires="cluster_address is on another interface than cluster_interface (fail)",
    fix="Set cluster_interface to {interface}, or cluster_address to an address of {wanted}",
)
INTERFACE_DOWN = Check(
    "net.interface.down",
    seen="recording",
    reads="/sys/class/net/*/operstate",
    fires="the training interface is down (warn)",
    fix="Bring it up with",
    command="ip link set {interface} up",
)
PEER_OTHER_INTERFACE = Check(
    "net.peer.other_interface",
    seen="sandbox",
    reads="ip route get, for every peer",
    fires="the kernel reaches a peer over another interface than the one with the training address (warn; fail where no"
    " call comes through)",
    fix="Give the training network a route of its own, or use addresses of one network",
)
PEER_NO_ROUTE = Check(
    "net.peer.no_route",
    seen="recording",
    reads="ip route get, for every peer",
    fires="there is no route to a peer (warn)",
    fix="Look at",
    command="ip route get {address}",
)
PORTS_OVERLAP = Check(
    "net.ports.overlap",
    seen="recording",
    reads="/proc/sys/net/ipv4/ip_local_port_range",
    fires="cluster_master_port lies in it, so that an outgoing connection may take it (warn)",
    fix="Choose a cluster_master_port outside that range, or keep the port free with",
    command="sudo sysctl -w net.ipv4.ip_local_reserved_ports={port}",
)


def address(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["network"]
    if "network" in node.seen["skipped"]:
        return
    has = {name: interface["addresses"] for name, interface in seen["interfaces"].items() if name != "lo"}
    shown = "; ".join(f"{name} has {', '.join(addresses)}" for name, addresses in has.items() if addresses)
    wanted = str(node.request["cluster_interface"])
    if wanted and wanted not in seen["interfaces"]:
        yield INTERFACE_MISSING.fail(
            node.name,
            f"it has no interface {wanted} (cluster_interface), only {', '.join(has) or 'none'}",
            observed=", ".join(has),
            expected=wanted,
        )
    interface = node.training_interface
    if not interface:
        yield ADDRESS_MISSING.fail(
            node.name,
            f"none of its interfaces has the address {node.address} (cluster_address)",
            f"Set cluster_address to one that it has ({shown})" if shown else "Give it the address",
            observed=shown,
            expected=node.address,
            evidence=evidence("ip -json addr", shown),
        )
    elif wanted in seen["interfaces"] and interface != wanted:
        yield INTERFACE_OTHER.fail(
            node.name,
            f"{node.address} (cluster_address) is on {interface}, and cluster_interface is {wanted}",
            named={"interface": interface, "wanted": wanted},
            observed=interface,
            expected=wanted,
        )
    elif seen["interfaces"][interface]["state"] == "down":
        yield INTERFACE_DOWN.warn(
            node.name,
            f"{interface}, which has {node.address}, is down",
            named={"interface": interface},
        )


def ways(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["network"]
    mine = node.training_interface
    if not mine or not seen["ways"]:
        return
    others: dict[str, list[str]] = {}
    for peer, address_of_peer in node.peers.items():
        way = seen["ways"].get(address_of_peer)
        interface = way["interface"] if way else ""
        if interface not in (mine, "lo"):
            others.setdefault(interface, []).append(peer)
    for interface, peers in others.items():
        names = few(peers)
        if interface:
            yield PEER_OTHER_INTERFACE.warn(
                node.name,
                f"it reaches {names} over {interface}, and its training address is on {mine}",
                "Give the training network a route of its own, or set cluster_address to addresses of one network",
                shell("ip route get {address}", address=node.peers[peers[0]]),
                observed=interface,
                expected=mine,
            )
        else:
            yield PEER_NO_ROUTE.warn(
                node.name,
                f"it has no route to {names}",
                named={"address": node.peers[peers[0]]},
            )


def ports(node: InspectedNode) -> Iterator[Finding]:
    span = node.seen["network"]["port_range"]
    port = int(node.request["cluster_master_port"])
    if not span or not span[0] <= port <= span[1] or _reserved(node.seen["network"]["reserved_ports"], port):
        return
    if node.request.get("firewall_tight") and node.request.get("firewall_mode") == "manage":
        return  # the range is about to be pinned elsewhere
    yield PORTS_OVERLAP.warn(
        node.name,
        f"any outgoing connection may take the port {port} (cluster_master_port): its kernel gives them"
        f" {span[0]} to {span[1]}",
        named={"port": port},
        observed=f"{span[0]}-{span[1]}",
        expected=f"without {port}",
        evidence=evidence("/proc/sys/net/ipv4/ip_local_port_range", f"{span[0]} {span[1]}"),
    )


def _reserved(text: str, port: int) -> bool:
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and int(first) <= port <= int(last or first):
            return True
    return False
