"""Addresses, interfaces and names: does each node have what the inventory says, and do all mean the same by a name."""

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

SLOW_NAME = 1.0  # seconds: files answer in milliseconds, a name server that is there in some more
HOSTS = "Write the nodes into /etc/hosts with"
NETWORK = playbook("site.yml", tags="network")
BY_HAND = "a launch of Muster names addresses; torchrun by hand, mpirun and ssh go by names"

DUPLICATE = Check(
    "net.address.duplicate",
    seen="sandbox",
    reads="the addresses of all interfaces of all nodes",
    fires="a node has the cluster_address of another one (fail): whoever calls it may reach either",
    fix="Take the address off the node that the inventory does not give it",
)
LOOPBACK = Check(
    "net.name.loopback",
    seen="sandbox",
    reads="what the node's own hostname resolves to on it",
    fires="an address of the loopback (127.0.1.1 of Debian's and Ubuntu's installers) is among the answers (warn): Gloo"
    " without GLOO_SOCKET_IFNAME then gives the others that address, and with c10d nobody hosts the store",
    fix=f"{HOSTS}: {NETWORK}",
)
MISSING = Check(
    "net.name.missing",
    seen="stand-in",
    reads="what the hostnames of the node itself and of all others resolve to on it",
    fires=f"one resolves to nothing (warn): {BY_HAND}",
    fix=HOSTS,
    command=NETWORK,
)
WRONG = Check(
    "net.name.wrong",
    seen="sandbox",
    reads="what the hostnames, and the short names in the inventory, of all nodes resolve to on each node",
    fires=f"one resolves to an address that this node does not have, alone or beside a right one (warn): {BY_HAND}",
    fix=f"Correct /etc/hosts or the name server, or: {NETWORK}",
)
SLOW = Check(
    "net.name.slow",
    seen="stand-in",
    reads="how long the names of the nodes take to resolve",
    fires=f"one takes longer than {SLOW_NAME:.0f} s (warn): PyTorch looks up names, also of addresses, while it"
    " connects",
    fix="Fix the name servers in /etc/resolv.conf, or write the nodes into /etc/hosts with",
    command=NETWORK,
)
SERVER = Check(
    "net.name.server",
    seen="sandbox",
    reads="the first name server of /etc/resolv.conf, asked over UDP for the name of an address beside the node's",
    fires="it does not answer within 2 s, be it with an error (warn): whatever is not in /etc/hosts waits for it, 5 s"
    " and twice by resolv.conf(5)",
    fix="Correct it in what writes /etc/resolv.conf (netplan, NetworkManager, systemd-resolved), or bring it back",
)
SAME_HOSTNAME = Check(
    "net.hostname.same",
    seen="stand-in",
    reads="the hostname of every node",
    fires="two nodes have the same (warn): c10d then takes both for the host of the store",
    fix="Give it a name of its own",
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
    """The same rules as for `inspect`, which looks before the network is set up: address, interface, ways.

    astray: links that lead to nobody, of which it is said with what comes of it.
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
    """Names that should lead to a node: its hostname, and the one in the inventory unless it is one for the outside."""
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
            f"{few(missing)} cannot be resolved on it ({BY_HAND})",
            observed="no address",
            expected=", ".join(cluster.node(entry.name).address for entry in cluster.nodes if entry.name in missing),
            evidence=evidence("getaddrinfo", ", ".join(missing)),
        )
    slow = [name for name in node.asked if node.named.get(name, {"seconds": SLOW_NAME})["seconds"] >= SLOW_NAME]
    if slow:
        yield SLOW.warn(
            node.name,
            f"it waits for the name server: {few(slow)} took longer than {SLOW_NAME:.0f} s",
            observed=f"{SLOW_NAME:.0f} s and more",
            expected="milliseconds",
            evidence=evidence("getaddrinfo", ", ".join(slow)),
        )
    else:
        yield from name_servers(node)


def name_servers(node: Node) -> Iterator[Finding]:
    """The first name server, for which every question waits; one behind it that is dead is asked by nobody."""
    first, *others = node.resolvers or ("",)
    if not first or node.resolvers[first] is not None:
        return
    before = f", and is asked before {few(others)}" if others else ""
    yield SERVER.warn(
        node.name,
        f"the name server {first} does not answer{before}: whatever is not in /etc/hosts waits for it"
        " (downloads, and the look-up of an address's name)",
        command=on_node(node.name, "cat /etc/resolv.conf"),
        observed="no answer",
        expected="an answer, whatever it is",
        evidence=evidence(f"the name of an address beside {node.address}, asked of {first}:53/udp", "no answer"),
    )


def right(node: Node, meant: Node, name: str, addresses: list[str]) -> Iterator[Finding]:
    """Whether a name leads, on one node, to the node that is meant."""
    loopback = [address for address in addresses if ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    more: dict[str, Any] = {
        "observed": ", ".join(addresses),
        "expected": meant.address,
        "evidence": evidence(f"getaddrinfo({name})", ", ".join(addresses)),
    }
    if meant is node and loopback:
        yield LOOPBACK.warn(
            node.name,
            f"its own name {name} leads to {loopback[0]}: Gloo gives that to the others unless it is given an"
            " interface, and with the rendezvous c10d nobody hosts the store",
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
            f"the name {name} leads to {few(own)} and to {few(foreign)}, which {meant.name} does not have ({BY_HAND}):"
            " whoever takes that one reaches another machine, or nobody",
            f"Correct the line in /etc/hosts or the name server, or run {NETWORK}; where it comes from",
            on_node(node.name, "getent ahosts {name}", name=name),
            peer=meant.name,
            **more,
        )
    elif not own:
        yield WRONG.warn(
            node.name,
            f"the name {name} leads to {more['observed']}, which {'it' if meant is node else meant.name} does not have"
            f" ({BY_HAND})",
            f"Correct the line in /etc/hosts or the name server, or run {NETWORK}; where it comes from",
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
                f"its {carrier} has {owner.address} as well, which is the address of {owner.name} in the inventory",
                "Take it off, there and in what sets it at boot, or correct cluster_address",
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
                f"it calls itself {hostname}, as {few(others)} {'does' if len(others) == 1 else 'do'}",
                peer=others[0] if len(others) == 1 else None,
                observed=hostname,
                expected="a hostname of its own",
                evidence=evidence("gethostname", hostname),
            )
