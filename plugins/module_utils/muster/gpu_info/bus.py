"""What tells a GPU on the bus, and a container from a machine, for all who read facts of a node."""

from __future__ import annotations

import re

# The containers among the answers of systemd-detect-virt, from its manual. Every other one but "none" is a machine.
CONTAINERS = (
    *("podman", "docker", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "rkt", "wsl", "proot", "pouch"),
    "container-other",
)
# Display controllers of PCI's class list: VGA, and those without a display, as the GPUs of servers are.
GPU_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"


def device_names(catalogue: str) -> dict[str, str]:
    """Return the names that pci.ids gives to the devices of NVIDIA."""
    names: dict[str, str] = {}
    inside = False
    for line in catalogue.splitlines():
        if not line.startswith(("\t", "#")):
            inside = line.startswith("10de")
        elif inside and re.match(r"\t[0-9a-f]{4} ", line):
            name = line[5:].strip()
            bracketed = re.search(r"\[(.+)\]", name)
            names[line[1:5]] = bracketed[1] if bracketed else name
    return names
