"""Families of findings, in display order. A family is the first word of a finding's id and has a title."""

from __future__ import annotations

FAMILIES = {
    "launch": "Launches",
    "smoke": "The acceptance test",
    "net": "The network between the nodes",
    "versions": "Version consistency across nodes",
    "gpu": "GPUs",
    "nvlink": "NVLink",
    "fabric_manager": "Fabric manager",
    "pci": "PCI Express",
    "sw": "Software on the node",
    "rdma": "InfiniBand and RoCE",
    "eth": "Ethernet",
    "drift": "Changes since the installation",
    "env": "Job environment",
    "firewall": "Firewall",
    "inspect": "Inspection",
    "job": "Running jobs",
    "node": "The node as a whole",
    "packages": "Package sources",
    "os": "Limits, memory, disk and kernel log",
    "data": "Shared data",
    "time": "Clocks",
    "torch": "The PyTorch environment",
    "user": "The training user",
}


def family(identity: str) -> str:
    return identity.partition(".")[0]


def place(identity: str) -> tuple[int, str]:
    """Return a sort key: the families of this module in their order, then other families by name."""
    own = family(identity)
    return (list(FAMILIES).index(own) if own in FAMILIES else len(FAMILIES), own)


def title(identity: str) -> str:
    own = family(identity)
    return FAMILIES.get(own, own.replace("_", " ").capitalize())
