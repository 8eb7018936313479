"""The network plan of DGX Sparks connected by a cable, as text that an administrator applies. Pure functions.

Names, addresses and the netplan file follow https://github.com/NVIDIA/dgx-spark-playbooks, nvidia/connect-two-sparks.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from .nccl_ib import OF_HALVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}")
INTERFACE = re.compile(r"en(P2)?(p\d+s\d+f\d)(np\d)")  # of one half of a cable: enp1s0f1np1, enP2p1s0f1np1
FIRST = IPv4Address("192.168.100.10")
HEAD = (
    "DGX Spark: a cable is two adapters of 100 Gbit/s each, and both need an address. Muster sets no address. Apply"
    " this by hand (from NVIDIA's documents, not yet seen on hardware):"
)


def has_cable(gpus: Sequence[str], model: str) -> bool:
    """Return whether a node is such a machine. gpus: PCI IDs; empty if the node was not inspected."""
    return any(one in OF_HALVES for one in gpus) if gpus else re.search("gb10|spark", model, re.IGNORECASE) is not None


def plan(nodes: Mapping[str, tuple[str, str]]) -> str:
    """Return the plan as lines. nodes: cluster_interface and cluster_address by node."""
    return "\n".join([HEAD, *(line for at, name in enumerate(nodes) for line in of_node(at, name, *nodes[name]))])


def of_node(at: int, name: str, interface: str, address: str) -> Iterator[str]:
    """Yield the lines of a node. Without an interface of the cable, yield the inventory values of NVIDIA's example."""
    known = INTERFACE.fullmatch(interface) if ADDRESS.fullmatch(address) else None
    half, slot, end = known.groups(default="") if known else ("", "p1s0f1", "np1")
    first = IPv4Address(address) if known else FIRST + at
    second = first + (256 if first.packed[2] < 255 else -256)  # the other half is another network
    if not known:
        yield f"  {name}: set cluster_address: {first}, and cluster_interface: en{slot}{end} (or the one that is up)"
    yield f"  {name}: write /etc/netplan/40-cx7.yaml with mode 0600, then run sudo netplan apply"
    yield from ("    network:", "      version: 2", "      ethernets:")
    for each, own in ((half, first), ("" if half else "P2", second)):
        yield f"        en{each}{slot}{end}: {{addresses: [{own}/24], dhcp4: false, mtu: 9000}}"
    variables = f"NCCL_IB_HCA=roce{slot},roceP2{slot}, NCCL_SOCKET_IFNAME=en{half}{slot}{end}"
    yield f"    NCCL: {variables} (set by the step gpu_stack and by each launch)"
