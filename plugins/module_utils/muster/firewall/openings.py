"""What may come in on a node, from what was requested of its firewall and what was seen of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import FirewallRequestError, Opening

if TYPE_CHECKING:
    from .look import FirewallState
    from .model import FirewallRequest


def training_interface(request: FirewallRequest, look: FirewallState) -> str:
    """The interface on which the peers come in. Raises FirewallRequestError."""
    found = request.interface or look.interfaces.get(request.address, "")
    if not found:
        raise FirewallRequestError(
            f"cluster_address {request.address} is on none of the node's interfaces: correct it, or name the interface"
            " on which the peers come in (cluster_interface)."
        )
    return found


def ssh_openings(look: FirewallState) -> list[Opening]:
    """The way in. Raises FirewallRequestError."""
    if not look.ssh_ports:
        raise FirewallRequestError("no port of ssh was found on the node, and nothing is closed before one is known.")
    return [Opening(("tcp",), ((port, port),), "", "", "ssh") for port in look.ssh_ports]


def openings(request: FirewallRequest, look: FirewallState) -> list[Opening]:
    """Everything that may come in, ssh first. Raises FirewallRequestError."""
    found = ssh_openings(look)
    interface = training_interface(request, look)
    ports = request.launch_ports if request.tight else ()
    for name, address in request.peers.items():
        found.append(Opening(("tcp",) if ports else (), ports, address, interface, f"peer {name}"))
    for allowed in request.allowed:
        found += [
            Opening(allowed.protos, (allowed.ports,), source, "", allowed.comment)
            for source in allowed.sources or ("",)
        ]
    return found
