"""Check each node's addresses and interfaces against the inventory, and the name resolution between nodes."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from ..inspect import training_network
from ..inspect.facts import InspectedNode
from ..verdict.check import Check
from ..verdict.commands import on_node, playbook, shell
from ..verdict.finding import evidence
from ..verdict.words import few
from . import routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding
    from .blame import Pair
    from .cluster import Cluster
    from .links import Node

SLOW_NAME = 1.0  # seconds; /etc/hosts and working name servers answer in milliseconds
HOSTS = "Add the nodes to /etc/hosts with"
NETWORK = playbook("site.yml", tags="network")
BY_HAND = "Muster launches use IP addresses, but manually started torchrun, mpirun and ssh use host names"

DUPLICATE = Check(
    "net.address.duplicate",
    seen="sandbox",
    reads="the addresses of all interfaces of all nodes",
    fires="a node has the cluster_address of another node (fail), so connections might reach either node",
    fix="Remove the address from the node for which the inventory lists another address",
)
LOOPBACK = Check(
    "net.name.loopback",
    seen="sandbox",
    reads="the addresses of the node's own hostname, resolved on the node",
    fires="an address is a loopback address, such as 127.0.1.1 from Debian's and Ubuntu's installers (warn). Without"
    " GLOO_SOCKET_IFNAME, Gloo advertises this address, and with c10d, no node hosts the store",
    fix=f"{HOSTS}: {NETWORK}",
)
MISSING = Check(
    "net.name.missing",
    seen="stand-in",
    reads="the addresses of the hostnames of all nodes, resolved on each node",
    fires=f"a hostname does not resolve (warn): {BY_HAND}",
    fix=HOSTS,
    command=NETWORK,
)
WRONG = Check(
    "net.name.wrong",
    seen="sandbox",
    reads="the addresses of the hostnames and short inventory names of all nodes, resolved on each node",
    fires=f"a name resolves to an address that the named node does not have (warn): {BY_HAND}",
    fix=f"Correct /etc/hosts or the name server, or run {NETWORK}",
)
SLOW = Check(
    "net.name.slow",
    seen="stand-in",
    reads="the time to resolve the names of the nodes",
    fires=f"resolving a name takes longer than {SLOW_NAME:.0f} s (warn). PyTorch resolves names while it connects",
    fix="Fix the name servers in /etc/resolv.conf, or add the nodes to /etc/hosts with",
    command=NETWORK,
)
SERVER = Check(
    "net.name.server",
    seen="sandbox",
    reads="the first name server of /etc/resolv.conf, queried over UDP for the name of a neighbouring address",
    fires="the name server sends no reply, not even an error, within 2 s (warn). Each query for a name that is not in"
    " /etc/hosts waits for this server: by default two attempts of 5 s (resolv.conf(5))",
    fix="Repair the name server, or configure another one in netplan, NetworkManager or systemd-resolved",
)
SAME_HOSTNAME = Check(
    "net.hostname.same",
    seen="stand-in",
    reads="the hostname of every node",
    fires="two nodes have the same hostname (warn). With c10d, both nodes would host the store",
    fix="Set a unique hostname",
    command="sudo hostnamectl set-hostname NAME",
)


def judge(cluster: Cluster) -> Iterator[Finding]:
    astray = {(link.origin, link.target) for link in routes.astray(cluster)}
    for node in cluster.nodes:
        if node.served is not None:
            yield from own(node, cluster, astray)
            if node.asked:
                yield from resolved(node, cluster)
    yield from duplicates(cluster)
    yield from same_hostname(cluster)


def own(node: Node, cluster: Cluster, astray: set[Pair]) -> Iterator[Finding]:
    """Apply the address, interface and route rules of `inspect` again. `inspect` runs before the network is set up.

    astray: links with a wrong route, which reach.judge reports together with their effect.
    """
    interfaces = node.interfaces
    if interfaces is None:
        return
    ways = {
        cluster.node(link.target).address: {"interface": link.interface}
        for link in cluster.touching(node.name)
        if link.origin == node.name and link.interface and (link.origin, link.target) not in astray
    }
    seen = {
        "interfaces": {name: {**entry, "state": entry["state"].lower()} for name, entry in interfaces.items()},
        "ways": ways,
    }
    subject = InspectedNode(
        node.name,
        {"cluster_address": node.address, "cluster_interface": node.interface},
        {"network": seen, "skipped": {}},
        peers={other.name: other.address for other in cluster.nodes if other.address in ways},
    )
    yield from training_network.address(subject)
    yield from training_network.ways(subject)


def names_of(node: str, hostname: str) -> list[str]:
    """Return the names that must resolve to a node: its hostname, and its inventory name if that has no dot."""
    return list(dict.fromkeys([hostname, *([node] if "." not in node else [])]))


def resolved(node: Node, cluster: Cluster) -> Iterator[Finding]:
    for entry in cluster.nodes:
        if entry.served is None:
            continue
        for name in names_of(entry.name, entry.served["hostname"]):
            seen = node.named.get(name)
            if seen is not None and seen["addresses"]:
                yield from right(node, entry, name, seen["addresses"])
    missing = [name for name in node.asked if name in node.named and not node.named[name]["addresses"]]
    hostnames = {entry.served["hostname"] for entry in cluster.nodes if entry.served}
    missing = [name for name in missing if name in hostnames]
    if missing:
        yield MISSING.warn(
            node.name,
            f"name resolution fails for {few(missing)}. {BY_HAND}",
            observed="no address",
            expected=", ".join(cluster.node(entry.name).address for entry in cluster.nodes if entry.name in missing),
            evidence=evidence("getaddrinfo", ", ".join(missing)),
        )
    slow = [name for name in node.asked if node.named.get(name, {"seconds": SLOW_NAME})["seconds"] >= SLOW_NAME]
    if slow:
        yield SLOW.warn(
            node.name,
            f"name resolution of {few(slow)} took longer than {SLOW_NAME:.0f} s",
            observed=f"{SLOW_NAME:.0f} s and more",
            expected="milliseconds",
            evidence=evidence("getaddrinfo", ", ".join(slow)),
        )
    else:
        yield from name_servers(node)


def name_servers(node: Node) -> Iterator[Finding]:
    """Check the first name server, because every query waits for it.

    The others are used only if the first one fails.
    """
    first, *others = node.resolvers or ("",)
    if not first or node.resolvers[first] is not None:
        return
    before = f", but is queried before {few(others)}" if others else ""
    yield SERVER.warn(
        node.name,
        f"the name server {first} does not respond{before}. Names that are not in /etc/hosts, such as download"
        " servers, resolve only after a timeout",
        command=on_node(node.name, "cat /etc/resolv.conf"),
        observed="no answer",
        expected="any answer",
        evidence=evidence(f"query for the name of a neighbour of {node.address} at {first}:53/udp", "no answer"),
    )


def right(node: Node, meant: Node, name: str, addresses: list[str]) -> Iterator[Finding]:
    """Check that, on one node, a name resolves to the intended node."""
    loopback = [address for address in addresses if ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    more: dict[str, Any] = {
        "observed": ", ".join(addresses),
        "expected": meant.address,
        "evidence": evidence(f"getaddrinfo({name})", ", ".join(addresses)),
    }
    if meant is node and loopback:
        yield LOOPBACK.warn(
            node.name,
            f"the node's own name {name} resolves to {loopback[0]}: without GLOO_SOCKET_IFNAME, Gloo advertises this"
            " address, and with the c10d rendezvous, no node hosts the store",
            HOSTS,
            NETWORK,
            **more,
        )
        return
    has = {address for seen in (meant.interfaces or {}).values() for address in seen["addresses"]} | {meant.address}
    own = [address for address in addresses if address.partition("%")[0] in has and address not in loopback]
    foreign = [address for address in addresses if address not in own]
    if own and foreign and meant.interfaces is not None and meant is not node:
        yield WRONG.warn(
            node.name,
            f"the name {name} resolves to {few(own)} and to {few(foreign)}, which {meant.name} does not have,"
            f" so connections might fail or reach another machine. {BY_HAND}",
            f"Correct /etc/hosts or the name server, or run {NETWORK}. Show the addresses with",
            on_node(node.name, "getent ahosts {name}", name=name),
            peer=meant.name,
            **more,
        )
    elif not own:
        yield WRONG.warn(
            node.name,
            f"the name {name} resolves to {more['observed']}, which {meant.name} does not have. {BY_HAND}",
            f"Correct /etc/hosts or the name server, or run {NETWORK}. Show the entry with",
            on_node(node.name, "grep -w {name} /etc/hosts", name=name),
            peer=None if meant is node else meant.name,
            **more,
        )


def duplicates(cluster: Cluster) -> Iterator[Finding]:
    for owner in cluster.nodes:
        for node in cluster.nodes:
            carrier = node.carrier(owner.address)
            if node is owner or not carrier:
                continue
            launched = {owner.name, node.name} & set(cluster.participants)
            yield (DUPLICATE.fail if launched else DUPLICATE.warn)(
                node.name,
                f"interface {carrier} has {owner.address}, which is the address of {owner.name} in the inventory",
                "Correct cluster_address, or remove the address from the configuration and, until a reboot, with",
                shell("sudo ip address del {address} dev {carrier}", address=owner.address, carrier=carrier),
                peer=owner.name,
                observed=f"{owner.address} on {node.name} {carrier}",
                expected=f"{owner.address} on {owner.name} alone",
                evidence=evidence("ip -json address", f"{carrier}: {owner.address}"),
            )


def same_hostname(cluster: Cluster) -> Iterator[Finding]:
    nodes: dict[str, list[str]] = {}
    for node in cluster.nodes:
        if node.served is not None:
            nodes.setdefault(node.served["hostname"], []).append(node.name)
    for hostname, names in nodes.items():
        for name in names if len(names) > 1 else []:
            others = [other for other in names if other != name]
            yield SAME_HOSTNAME.warn(
                name,
                f"the hostname {hostname} is also used by {few(others)}",
                peer=others[0] if len(others) == 1 else None,
                observed=hostname,
                expected="a unique hostname",
                evidence=evidence("gethostname", hostname),
            )
