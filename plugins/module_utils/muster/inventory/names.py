"""Whether every node has a name of its own, that can stand in a hosts file."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .model import Problem, ip, join, like_an_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory, InventoryNode

# RFC 1123, and the underscore, which no name in the DNS may have and many in a hosts file do.
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?", re.ASCII)


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
