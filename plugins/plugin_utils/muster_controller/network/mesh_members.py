"""Creates the list of SSH mesh members from the inventory and the results of the nodes."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from muster.network import ssh_mesh

if TYPE_CHECKING:
    from collections.abc import Mapping


def member_of(name: str, address: str, ansible_host: str, look: Mapping[str, Any]) -> ssh_mesh.MeshMember:
    """Return a node as a mesh member. look: the result of ssh_mesh_key, empty if the node was not checked."""
    if "host_keys" not in look:
        return ssh_mesh.MeshMember(name, address, seen=False)
    return ssh_mesh.MeshMember(
        name=name,
        address=address,
        sources=(address, *other_sources(ansible_host)),
        port=int(look["port"]),
        key=str(look["key"]),
        host_keys=tuple(str(key) for key in look["host_keys"]),
        hostname=str(look["hostname"]),
    )


def other_sources(ansible_host: str) -> list[str]:
    """Return the management address, from which the node might also log in to peers."""
    try:
        address = ipaddress.ip_address(ansible_host)
    except ValueError:
        return []
    return [] if address.is_loopback else [str(address)]
