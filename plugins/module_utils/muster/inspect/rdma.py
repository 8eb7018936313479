"""Convert the RDMA data collected on a node (muster_node/looks/adapters.py) into facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INFINIBAND_CLASS = "0x0207"
# All adapters of this vendor support RDMA, InfiniBand and Ethernet. Ethernet adapters of other vendors support RDMA
# only if the kernel lists them as RDMA devices.
MELLANOX = "0x15b3"
# NVIDIA's stacks: the DOCA profiles (doca-host alone is only the repository), and their predecessor MLNX_OFED.
_DOCA = re.compile(r"doca-(ofed|roce|networking|all|kernel)(-.*)?")
_OFED = re.compile(r"mlnx-ofed-.*|ofed-scripts")
_NAME = re.compile(r"^name:\s+(\S+)", re.MULTILINE)
# Versions of libibverbs in these stacks: 2410mlnx54-1.2410068, 50mlnx1-1.59056.
_OF_MELLANOX = re.compile(r"\d+mlnx\d+")


def rdma_facts(look: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RDMA adapters, devices and ports of the node, and its installed RDMA libraries and modules."""
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
        "firmware": {name: device["firmware"] for name, device in sorted(look["devices"].items())},
        "stack": _stack(packages, look["ofed_info"], look["loaded"]),
        "packages": packages,
        "loaded": sorted(look["loaded"]),
        # The kernel uses underscores in module names, even if the file name has dashes.
        "known": sorted({name.replace("-", "_") for name in _NAME.findall(look["modinfo"])}),
        "kernel": look["kernel"],
    }


def _installed(shown: str) -> dict[str, str]:
    lines = [line.split() for line in shown.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 3 and words[2] == "installed"}


def _stack(packages: Mapping[str, str], ofed_info: str, loaded: Mapping[str, str]) -> str:
    """Return the name of an installed RDMA stack that replaces the distribution's; "" if there is none."""
    for name, version in packages.items():
        if _DOCA.fullmatch(name):
            return f"DOCA ({name} {version})"
    printed = ofed_info.strip().rstrip(":")[:60]
    if printed.isprintable() and printed:
        return printed
    for name, version in packages.items():
        if _OFED.fullmatch(name) or (name == "libibverbs1" and _OF_MELLANOX.match(version)):
            return f"MLNX_OFED ({name} {version})"
    if loaded.get("mlx5_core"):
        return f"MLNX_OFED (mlx5_core {loaded['mlx5_core'][:40]})"
    return ""


def _rate(text: str) -> int:
    """Return the rate in Gbit/s from text such as "400 Gb/sec (4X NDR)"; 0 if unknown."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
