"""What the look at RDMA (muster_node/looks/adapters.py) brought back, made into facts. Nothing is made up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INFINIBAND_CLASS = "0x0207"
# Adapters of this maker do RDMA, whether InfiniBand or Ethernet. Of others an Ethernet adapter does when the kernel
# shows it as an RDMA device, and not otherwise.
MELLANOX = "0x15b3"
# NVIDIA's own stacks: the profiles of DOCA (doca-host alone is but its repository), and before them MLNX_OFED.
_DOCA = re.compile(r"doca-(ofed|roce|networking|all|kernel)(-.*)?")
_OFED = re.compile(r"mlnx-ofed-.*|ofed-scripts")
_NAME = re.compile(r"^name:\s+(\S+)", re.MULTILINE)
# As the libibverbs of either is called: 2410mlnx54-1.2410068, 50mlnx1-1.59056.
_OF_MELLANOX = re.compile(r"\d+mlnx\d+")


def rdma_facts(look: Mapping[str, Any]) -> dict[str, Any]:
    """Return the adapters, their devices and ports, and whose user space and modules are there."""
    packages = _installed(look["packages"])
    slots = {device["slot"] for device in look["devices"].values()}
    return {
        "adapters": [
            {
                "slot": slot,
                "id": f"{seen['vendor'].removeprefix('0x')}:{seen['device'].removeprefix('0x')}",
                "driver": seen["driver"],
                "infiniband": seen["class"].startswith(INFINIBAND_CLASS),
            }
            for slot, seen in sorted(look["slots"].items())
            if slot in slots or seen["class"].startswith(INFINIBAND_CLASS) or seen["vendor"] == MELLANOX
        ],
        "ports": [
            {
                "device": name,
                "port": int(number),
                "layer": port["link_layer"],
                "active": "ACTIVE" in port["state"],
                "rate": _rate(port["rate"]),
                "interfaces": device["interfaces"],
            }
            for name, device in sorted(look["devices"].items())
            for number, port in sorted(device["ports"].items())
        ],
        "stack": _stack(packages, look["ofed_info"], look["loaded"]),
        "packages": packages,
        "loaded": sorted(look["loaded"]),
        # The kernel's own name for one has an underscore, whatever its file is called.
        "known": sorted({name.replace("-", "_") for name in _NAME.findall(look["modinfo"])}),
        "kernel": look["kernel"],
    }


def _installed(shown: str) -> dict[str, str]:
    lines = [line.split() for line in shown.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 3 and words[2] == "installed"}


def _stack(packages: Mapping[str, str], ofed_info: str, loaded: Mapping[str, str]) -> str:
    """Name the stack that is there instead of the distribution's; "" for none."""
    for name, version in packages.items():
        if _DOCA.fullmatch(name):
            return f"DOCA ({name} {version})"
    said = ofed_info.strip().rstrip(":")[:60]
    if said.isprintable() and said:
        return said
    for name, version in packages.items():
        if _OFED.fullmatch(name) or (name == "libibverbs1" and _OF_MELLANOX.match(version)):
            return f"MLNX_OFED ({name} {version})"
    if loaded.get("mlx5_core"):
        return f"MLNX_OFED (mlx5_core {loaded['mlx5_core'][:40]})"
    return ""


def _rate(text: str) -> int:
    """Gbit/s of "400 Gb/sec (4X NDR)"; 0 where nobody knows."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
