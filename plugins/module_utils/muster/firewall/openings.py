"""What may come in on a node, from what was requested of its firewall and what was seen of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Opening, WishError

if TYPE_CHECKING:
    from .look import Look
    from .model import Wish


def training_interface(wish: Wish, look: Look) -> str:
    """The interface on which the peers come in. Raises WishError."""
    found = wish.interface or look.interfaces.get(wish.address, "")
    if not found:
        raise WishError(
            f"cluster_address {wish.address} is on none of the node's interfaces: correct it, or name the interface on"
            " which the peers come in (cluster_interface)."
        )
    return found


def openings(wish: Wish, look: Look) -> list[Opening]:
    """Everything that may come in, ssh first. Raises WishError."""
    if not look.ssh_ports:
        raise WishError("no port of ssh was found on the node, and nothing is closed before one is known.")
    interface = training_interface(wish, look)
    ports = wish.launch_ports if wish.tight else ()
    found = [Opening(("tcp",), ((port, port),), "", "", "ssh") for port in look.ssh_ports]
    for name, address in wish.peers.items():
        found.append(Opening(("tcp",) if ports else (), ports, address, interface, f"peer {name}"))
    for allowed in wish.allowed:
        found += [
            Opening(allowed.protos, (allowed.ports,), source, "", allowed.comment)
            for source in allowed.sources or ("",)
        ]
    return found
