"""Whether every node has a name that can stand in a hosts file, and addresses of its own that the others can reach."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .model import CLUSTER, Address, Problem, ip, join, like_an_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory, InventoryNode

# RFC 5737, RFC 3849 and RFC 9637: addresses that no machine has, for use in examples.
DOCUMENTATION = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    )
)
# "This network", and what was reserved for later with the broadcast address in it (RFC 6890).
NOBODYS = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "240.0.0.0/4")))
NOBODY = "no address of one machine"
# RFC 1123, and the underscore, which no name in the DNS may have and many in a hosts file do.
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?", re.ASCII)


def addresses_are_whole(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        given = {node.text("cluster_address"): "cluster_address", node.connects_to: "ansible_host"}
        for text, variable in given.items():
            if like_an_address(text) and ip(text) is None:
                yield Problem(
                    node.name,
                    f"{variable} is {text}, which looks like an IP address and is none",
                    "Write the address alone, without a port, a prefix or brackets, every number of it from 0 to 255",
                )


def addresses_are_given(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        address = node.text("cluster_address")
        if node.errors.keys() & {"ansible_host", "cluster_address"} or ip(address) or like_an_address(address):
            continue
        if not address or address == node.name:
            yield Problem(node.name, "no address is given", "Add its IP address as ansible_host")
        else:
            yield Problem(
                node.name,
                f"cluster_address is {address}, but training needs an IP address, not a name",
                "Add its IP address as cluster_address; ansible_host may stay a name",
            )


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
    told = set()
    for (variable, address_text), names in holders.items():
        # The training address is by default the one that Ansible connects to: one mistake, one problem.
        if len(names) > 1 and (address_text, *names) not in told:
            told.add((address_text, *names))
            yield Problem(
                ", ".join(names),
                f"have the same address, {address_text} ({variable})",
                "Give every node its own, and list every machine once",
            )


def no_documentation_addresses(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.connects:
        return
    for node in inventory.nodes:
        for text in dict.fromkeys((node.connects_to, node.text("cluster_address"))):
            address = ip(text)
            for network in DOCUMENTATION:
                if address and address in network:
                    yield Problem(
                        node.name,
                        f"{address} is a sample address: no machine has one of {network}",
                        "Write the node's own address",
                    )


def addresses_can_be_reached(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        text = node.text("cluster_address")
        address = ip(text)
        kind = _unreachable_kind(address) if address else ""
        if address and address.version == 4 and address.is_link_local and len(inventory.nodes) > 1:
            # Two machines with a cable between them, as DGX Sparks may be joined. The kernel reaches all of
            # 169.254.0.0/16 over each interface that has one of its addresses: only a name says which is meant.
            if not node.text("cluster_interface"):
                yield Problem(
                    node.name,
                    f"cluster_address {address} is {kind}, which says nothing of the interface that it is on",
                    "Set cluster_interface to the interface that has it, or cluster_address to an address of a network",
                )
        elif kind and (len(inventory.nodes) > 1 or kind == NOBODY):
            yield Problem(
                node.name,
                f"cluster_address {address} is {kind}, at which no other node can reach it",
                "Set cluster_address to its address on the network that the nodes share",
            )
        # A loopback address may be the near end of a tunnel, and a link-local one the way in from beside the node.
        host = ip(node.connects_to)
        if host and node.connects_to != text and _unreachable_kind(host) == NOBODY:
            yield Problem(node.name, f"ansible_host {host} is {NOBODY}", "Write the node's own address")


def link_local_on_all_or_none(inventory: Inventory) -> Iterator[Problem]:
    """One end of a cable alone is of no use."""
    known = [(node, address) for node in inventory.participants() if (address := ip(node.text("cluster_address")))]
    # One whose interface is not named has a problem of its own.
    linked = [node.name for node, address in known if address.is_link_local and node.text("cluster_interface")]
    others = [node.name for node, address in known if not address.is_link_local]
    if linked and others:
        yield Problem(
            CLUSTER,
            f"{join(linked, [])} is to train over a link-local address, and {join(others, [])} is not: neither reaches"
            " the other",
            "Set cluster_address to addresses of one network on all nodes",
        )


def one_address_family(inventory: Inventory) -> Iterator[Problem]:
    families: dict[int, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        address = ip(node.text("cluster_address"))
        if address:
            families[address.version].append(node.name)
    if len(families) > 1:
        yield Problem(
            CLUSTER,
            f"training goes over IPv4 on {join(families[4], [])}, and over IPv6 on {join(families[6], [])}",
            "Set cluster_address to addresses of one kind on all nodes",
        )


def interfaces_are_names(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        name = node.text("cluster_interface")
        if "cluster_interface" in node.variables and name and not re.fullmatch(r"[^\s/:@]{1,15}", name):
            yield Problem(
                node.name,
                f"cluster_interface is {name!r}, which is no name of a network interface",
                "Write the name as ip link shows it, up to the @, or leave it empty",
            )


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
            yield Problem(
                repr(node.name),
                "this is no name that a host can have",
                "Use letters, digits, - and dots; the machine's address goes into ansible_host",
            )
        elif node.name.lower().split(".")[0] == "localhost" and len(inventory.nodes) > 1:
            yield Problem(node.name, "this name means another machine on every node", "Give the node a name of its own")
        host = node.connects_to
        if host and host != node.name and not can_be_host(host) and not like_an_address(host):
            if "@" in host:
                fix = "Write the user as ansible_user, and only the host as ansible_host"
            else:
                fix = "Write its IP address or its name there, nothing else"
            yield Problem(node.name, f"ansible_host is {host!r}, which is neither an address nor a name", fix)


def names_are_used_once(inventory: Inventory) -> Iterator[Problem]:
    spelt: dict[str, list[str]] = defaultdict(list)
    addressed: dict[str, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        spelt[node.name.lower()].append(node.name)
        for host in _addresses(node):
            addressed[host].append(node.name)
    for same in spelt.values():
        if len(same) > 1:
            yield Problem(
                join(same, []),
                "these names differ only in upper and lower case, which is the same to a hosts file",
                "Give every node a name of its own, and list every machine once",
            )
    for node in inventory.nodes:
        name = _one_spelling(node.name)
        if name in _addresses(node):
            continue  # at its own address: another node at the same one is told of elsewhere
        for other in addressed.get(name, []):
            yield Problem(
                node.name,
                f"this is the address of {other}, and the name of another node",
                "Give the node another name",
            )


def _addresses(node: InventoryNode) -> set[str]:
    return {_one_spelling(text) for text in (node.connects_to, node.text("cluster_address")) if text}


def _one_spelling(host: str) -> str:
    return str(ip(host) or host.lower())
