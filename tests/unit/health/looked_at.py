"""What was looked at on a node, as recorded/ has it, with what a case lays over it (test_node.py says how)."""

from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

from cases import document_of

HERE = Path(__file__).parent
RECORDED = document_of(HERE / "recorded/node.yml")
SERVER = document_of(HERE / "recorded/server.yml")
REQUEST = document_of(HERE / "recorded/request.yml")


def lay_over(looks: dict[str, Any], changes: dict[str, Any]) -> None:
    for place, value in changes.items():
        *folders, last = place.split("/") if place not in looks else [place]
        inner = looks
        for folder in folders:
            inner = inner[folder]
        inner[last] = value


def configuration(acs: int | None) -> str:
    """A device's configuration with ACS behind another capability; without it below 0, not readable at None."""
    if acs is None:
        return bytes(0x40).hex()
    first = struct.pack("<IHH", 0x0001 | 1 << 16 | 0x148 << 20, 0, 0)
    second = struct.pack("<IHH", (0x000D if acs >= 0 else 0x0010) | 1 << 16, 0x1F, max(acs, 0))
    return (bytes(0x100) + first.ljust(0x48, b"\0") + second).hex()


def looked(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    looks, request = copy.deepcopy(RECORDED), dict(REQUEST)
    for layer in ([copy.deepcopy(SERVER)] if case.get("base") == "server" else []) + [case]:
        request |= layer.get("request", {})
        lay_over(looks, layer.get("looks", {}))
    looks["kernel_log"] = {"reach": None, "cut": {}, **looks["kernel_log"]}
    for adapter in looks["rdma"]["devices"].values():
        for port in adapter["ports"].values():
            # What most cases say nothing of: the default partition, and the manager that has made it.
            infiniband = port["link_layer"] == "InfiniBand"
            port.setdefault("pkeys", {"0": "0xffff"})
            port.setdefault("sm_lid", "0x1" if infiniband else "0x0")
    for device in looks["pci"]["devices"].values():
        if "acs" in device:
            device["configuration"] = configuration(device["acs"])
    return looks, request
