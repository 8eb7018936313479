"""Check that node names are unique and valid in a hosts file, and that addresses are unique and reachable from the
other nodes.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .model import CLUSTER, Address, Problem, ip, join, like_an_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory, InventoryNode

# RFC 5737, RFC 3849 and RFC 9637: addresses reserved for documentation.
DOCUMENTATION = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    )
)
# "This network", and the range reserved for future use, which contains the broadcast address (RFC 6890).
NOBODYS = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "240.0.0.0/4")))
NOBODY = "not the address of a single host"
# RFC 1123, and the underscore, which is invalid in DNS host names but common in hosts files.
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?", re.ASCII)


def addresses_are_whole(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        given = {node.text("cluster_address"): "cluster_address", node.connects_to: "ansible_host"}
        for text, variable in given.items():
            if like_an_address(text) and ip(text) is None:
                what = f"{variable} is {text}, which is not a valid IP address"
                fix = "Set only the address, without port, prefix or brackets. IPv4 numbers range from 0 to 255"
                yield Problem(node.name, what, fix, option=variable)


def addresses_are_given(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        address = node.text("cluster_address")
        if node.errors.keys() & {"ansible_host", "cluster_address"} or ip(address) or like_an_address(address):
            continue
        if not address or address == node.name:
            yield Problem(node.name, "no IP address is set", "Set ansible_host to the node's IP address")
        else:
            what = f"cluster_address is {address}, but training requires an IP address, not a host name"
            fix = "Set cluster_address to an IP address. ansible_host can be a host name"
            yield Problem(node.name, what, fix, option="cluster_address")


def addresses_are_used_once(inventory: Inventory) -> Iterator[Problem]:
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in inventory.nodes:
        address = ip(node.text("cluster_address"))
        if address:
            holders["cluster_address", str(address)].append(node.name)
        if node.connects_to:
            host = str(ip(node.connects_to) or node.connects_to.lower())
            port = node.text("ansible_port") or "22"
            holders["ansible_host", host if port == "22" else f"{host} port {port}"].append(node.name)
    reported = set()
    for (variable, address_text), names in holders.items():
        # cluster_address defaults to ansible_host: report a duplicate of both as one problem.
        if len(names) > 1 and (address_text, *names) not in reported:
            reported.add((address_text, *names))
            what = f"several nodes have the same {variable} {address_text}"
            fix = "Give each node a unique address, and list each machine only once"
            yield Problem(", ".join(names), what, fix)


def no_documentation_addresses(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.connects:
        return
    for node in inventory.nodes:
        for text in dict.fromkeys((node.connects_to, node.text("cluster_address"))):
            address = ip(text)
            for network in DOCUMENTATION:
                if address and address in network:
                    what = f"{address} is reserved for documentation ({network})"
                    fix = "Set the node's real address"
                    yield Problem(node.name, what, fix, option="ansible_host")


def addresses_can_be_reached(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        text = node.text("cluster_address")
        address = ip(text)
        kind = _unreachable_kind(address) if address else ""
        if address and address.version == 4 and address.is_link_local and len(inventory.nodes) > 1:
            # Two machines connected by a cable, such as two DGX Sparks. The kernel routes all of 169.254.0.0/16 to
            # every interface with a link-local address, so cluster_interface must select one.
            if not node.text("cluster_interface"):
                what = f"cluster_address {address} is {kind}, which does not identify an interface"
                fix = "Set cluster_interface to the interface of this address, or cluster_address to a routable address"
                yield Problem(node.name, what, fix, option="cluster_address")
        elif kind and (len(inventory.nodes) > 1 or kind == NOBODY):
            what = f"cluster_address {address} is {kind}, so other nodes cannot reach the node"
            fix = "Set cluster_address to the node's address on the network shared by all nodes"
            yield Problem(node.name, what, fix, option="cluster_address")
        # ansible_host may be a loopback address (local end of a tunnel) or link-local (same network segment).
        host = ip(node.connects_to)
        if host and node.connects_to != text and _unreachable_kind(host) == NOBODY:
            yield Problem(
                node.name, f"ansible_host {host} is {NOBODY}", "Set the node's real address", option="ansible_host"
            )


def link_local_on_all_or_none(inventory: Inventory) -> Iterator[Problem]:
    known = [(node, address) for node in inventory.participants() if (address := ip(node.text("cluster_address")))]
    # addresses_can_be_reached reports link-local nodes without cluster_interface.
    linked = [node.name for node, address in known if address.is_link_local and node.text("cluster_interface")]
    others = [node.name for node, address in known if not address.is_link_local]
    if linked and others:
        yield Problem(
            CLUSTER,
            f"link-local training addresses ({join(linked, [])}) and routable training addresses ({join(others, [])})"
            " cannot reach each other",
            "Set cluster_address to addresses of the same network on all nodes",
        )


def one_address_family(inventory: Inventory) -> Iterator[Problem]:
    families: dict[int, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        address = ip(node.text("cluster_address"))
        if address:
            families[address.version].append(node.name)
    if len(families) > 1:
        what = f"training uses IPv4 on {join(families[4], [])} and IPv6 on {join(families[6], [])}"
        fix = "Set cluster_address to addresses of the same IP version on all nodes"
        yield Problem(CLUSTER, what, fix)


def interfaces_are_names(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        name = node.text("cluster_interface")
        if "cluster_interface" in node.variables and name and not re.fullmatch(r"[^\s/:@]{1,15}", name):
            what = f"cluster_interface is {name!r}, which is not a valid network interface name"
            fix = "Use a name from the output of ip link, without the part after @, or leave cluster_interface empty"
            yield Problem(node.name, what, fix, option="cluster_interface")


def _unreachable_kind(address: Address) -> str:
    kinds = {
        "a loopback address": address.is_loopback,
        "a link-local address": address.is_link_local,
        NOBODY: address.is_unspecified or address.is_multicast or any(address in network for network in NOBODYS),
    }
    return next((kind for kind, applies in kinds.items() if applies), "")


def can_be_host(text: str) -> bool:
    return ip(text) is not None or _HOST.fullmatch(text) is not None


def names_can_be_hosts(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        if not can_be_host(node.name) and not like_an_address(node.name):
            what = "the node name is not a valid host name"
            fix = "Use letters, digits, - and dots in the name, and set the address as ansible_host"
            yield Problem(repr(node.name), what, fix)
        elif node.name.lower().split(".")[0] == "localhost" and len(inventory.nodes) > 1:
            yield Problem(node.name, "every node resolves this name to loopback", "Give the node another name")
        host = node.connects_to
        if host and host != node.name and not can_be_host(host) and not like_an_address(host):
            if "@" in host:
                fix = "Set the user as ansible_user, and only the host as ansible_host"
            else:
                fix = "Set ansible_host to only an IP address or host name"
            what = f"ansible_host is {host!r}, which is neither an IP address nor a host name"
            yield Problem(node.name, what, fix, option="ansible_host")


def names_are_used_once(inventory: Inventory) -> Iterator[Problem]:
    spelt: dict[str, list[str]] = defaultdict(list)
    addressed: dict[str, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        spelt[node.name.lower()].append(node.name)
        for host in _addresses(node):
            addressed[host].append(node.name)
    for same in spelt.values():
        if len(same) > 1:
            what = "these node names differ only in case, which hosts files ignore"
            fix = "Give each node a unique name, and list each machine only once"
            yield Problem(join(same, []), what, fix)
    for node in inventory.nodes:
        name = _one_spelling(node.name)
        if name in _addresses(node):
            continue  # its own address; addresses_are_used_once reports duplicates
        for other in addressed.get(name, []):
            what = f"the name of this node is the address of node {other}"
            fix = "Give the node another name"
            yield Problem(node.name, what, fix)


def _addresses(node: InventoryNode) -> set[str]:
    return {_one_spelling(text) for text in (node.connects_to, node.text("cluster_address")) if text}


def _one_spelling(host: str) -> str:
    return str(ip(host) or host.lower())
