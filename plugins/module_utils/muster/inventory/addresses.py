"""Whether every node has a name and addresses of its own, at which the others can reach it."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .model import CLUSTER, Address, Problem, ip, join, like_an_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

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
