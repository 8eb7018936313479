"""Check that a node has its training address on the expected interface and can reach the other nodes from that
interface.
"""

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
    fires="the interface cluster_interface does not exist on the node (fail)",
    fix="Correct cluster_interface, or leave it empty to use the interface with cluster_address",
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
    fix="Bring the interface up with",
    command="ip link set {interface} up",
)
PEER_OTHER_INTERFACE = Check(
    "net.peer.other_interface",
    seen="sandbox",
    reads="ip route get for every peer",
    fires="the route to a peer does not use the interface with the training address (warn; fail if connections to the"
    " peer fail)",
    fix="Add a route for the training network, or use addresses of the same network",
)
PEER_NO_ROUTE = Check(
    "net.peer.no_route",
    seen="recording",
    reads="ip route get for every peer",
    fires="a peer has no route (warn)",
    fix="Check the route with",
    command="ip route get {address}",
)
PORTS_OVERLAP = Check(
    "net.ports.overlap",
    seen="recording",
    reads="/proc/sys/net/ipv4/ip_local_port_range",
    fires="cluster_master_port is in the ephemeral port range, so an outgoing connection might use it (warn)",
    fix="Choose a cluster_master_port outside this range, or reserve the port with",
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
            f"no interface {wanted} (cluster_interface); present: {', '.join(has) or 'none'}",
            observed=", ".join(has),
            expected=wanted,
        )
    interface = node.training_interface
    if not interface:
        yield ADDRESS_MISSING.fail(
            node.name,
            f"no interface has the address {node.address} (cluster_address)",
            f"Set cluster_address to an address of the node ({shown})" if shown else "Configure the address",
            observed=shown,
            expected=node.address,
            evidence=evidence("ip -json addr", shown),
        )
    elif wanted in seen["interfaces"] and interface != wanted:
        yield INTERFACE_OTHER.fail(
            node.name,
            f"{node.address} (cluster_address) is on {interface}, but cluster_interface is {wanted}",
            named={"interface": interface, "wanted": wanted},
            observed=interface,
            expected=wanted,
        )
    elif seen["interfaces"][interface]["state"] == "down":
        yield INTERFACE_DOWN.warn(
            node.name,
            f"interface {interface} with {node.address} is down",
            named={"interface": interface},
        )


def ways(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["network"]
    mine = node.training_interface
    if not mine or not seen["ways"]:
        return
    own = [one for interface in seen["interfaces"].values() for one in interface["addresses"]]
    others: dict[str, list[str]] = {}
    for peer, address_of_peer in node.peers.items():
        way = seen["ways"].get(address_of_peer)
        interface = way["interface"] if way else ""
        if interface != mine and not (interface == "lo" and address_of_peer in own):
            others.setdefault(interface, []).append(peer)
    for interface, peers in others.items():
        names = few(peers)
        if interface:
            yield PEER_OTHER_INTERFACE.warn(
                node.name,
                f"the route to {names} uses {interface}, but the training address is on {mine}",
                "Add a route for the training network, or set cluster_address to addresses of the same network",
                shell("ip route get {address}", address=node.peers[peers[0]]),
                observed=interface,
                expected=mine,
            )
        else:
            yield PEER_NO_ROUTE.warn(
                node.name,
                f"no route to {names}",
                named={"address": node.peers[peers[0]]},
            )


def ports(node: InspectedNode) -> Iterator[Finding]:
    span = node.seen["network"]["port_range"]
    port = int(node.request["cluster_master_port"])
    if not span or not span[0] <= port <= span[1] or _reserved(node.seen["network"]["reserved_ports"], port):
        return
    if node.request.get("firewall_tight") and node.request.get("firewall_mode") == "manage":
        return  # Muster will pin another range
    yield PORTS_OVERLAP.warn(
        node.name,
        f"port {port} (cluster_master_port) is in the ephemeral port range {span[0]} to {span[1]}, so an outgoing"
        " connection might already use it",
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
