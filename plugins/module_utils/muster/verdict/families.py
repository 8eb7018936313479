"""The first word of a finding's id, and what people call it; in this order they are shown."""

from __future__ import annotations

FAMILIES = {
    "launch": "Launches",
    "smoke": "The acceptance test",
    "net": "The network between the nodes",
    "versions": "The same on every node",
    "gpu": "GPUs",
    "nvlink": "NVLink",
    "fabric_manager": "Fabric manager",
    "pci": "PCI Express",
    "sw": "Software on the node",
    "rdma": "InfiniBand and RoCE",
    "eth": "Ethernet",
    "drift": "What changed since it was installed",
    "env": "Environment of a job",
    "firewall": "Firewall",
    "inspect": "Inspection",
    "job": "Jobs that run",
    "node": "The node as a whole",
    "packages": "Where packages come from",
    "os": "Limits, memory, disk and kernel log",
    "data": "Shared data",
    "time": "Clocks",
    "torch": "The environment of PyTorch",
    "user": "The training user",
}


def family(identity: str) -> str:
    return identity.partition(".")[0]


def place(identity: str) -> tuple[int, str]:
    """Sort by this: a family that is not named above follows by its name."""
    own = family(identity)
    return (list(FAMILIES).index(own) if own in FAMILIES else len(FAMILIES), own)


def title(identity: str) -> str:
    own = family(identity)
    return FAMILIES.get(own, own.replace("_", " ").capitalize())
