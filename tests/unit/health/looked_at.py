"""The collected data of a node in recorded/, with the changes of a case (see test_node.py)."""

from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

from cases import document_of
from muster_node.looks import kernel_log

HERE = Path(__file__).parent
RECORDED = document_of(HERE / "recorded/node.yml")
SERVER = document_of(HERE / "recorded/server.yml")
REQUEST = document_of(HERE / "recorded/request.yml")
# Defaults of an adapter and its port.
ADAPTER = {"firmware": "28.43.2026", "board": "MT_0000000838", "kind": "MT4129", "slot": "0000:18:00.0"}
PORT: dict[str, Any] = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    "lid": "0x5",
    "gids": {"0": {"gid": "fe80:0000:0000:0000:a088:c203:0012:3456", "type": "IB/RoCE v1", "netdev": "ibp24s0"}},
    "counters": {},
}


def lay_over(looks: dict[str, Any], changes: dict[str, Any]) -> None:
    for place, value in changes.items():
        *folders, last = place.split("/") if place not in looks else [place]
        inner = looks
        for folder in folders:
            inner = inner[folder]
        inner[last] = value


def configuration(acs: int | None) -> str:
    """Return a PCI configuration space with ACS after another capability. A negative value omits ACS; None makes it
    unreadable."""
    if acs is None:
        return bytes(0x40).hex()
    first = struct.pack("<IHH", 0x0001 | 1 << 16 | 0x148 << 20, 0, 0)
    second = struct.pack("<IHH", (0x000D if acs >= 0 else 0x0010) | 1 << 16, 0x1F, max(acs, 0))
    return (bytes(0x100) + first.ljust(0x48, b"\0") + second).hex()


def adapters(ports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the adapters for ports with names such as mlx5_0/1. Each port lists its differences from the defaults."""
    found: dict[str, Any] = {}
    for place, given in ports.items():
        name, number = place.split("/")
        own = {key: given.get(key, usual) for key, usual in ADAPTER.items()}
        port = {**copy.deepcopy(PORT), **{key: value for key, value in given.items() if key not in ADAPTER}}
        found.setdefault(name, {**own, "ports": {}})["ports"][number] = port
    return found


def looked(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    looks, request = copy.deepcopy(RECORDED), dict(REQUEST)
    for layer in ([copy.deepcopy(SERVER)] if case.get("base") == "server" else []) + [case]:
        request |= layer.get("request", {})
        if "ports" in layer:
            looks["rdma"]["devices"] = adapters(layer["ports"])
        lay_over(looks, layer.get("looks", {}))
    lines = [kernel_log.line_of(one["text"], one["age"]) for one in looks["kernel_log"].get("lines", [])]
    looks["kernel_log"] = {"reach": None, "cut": {}, **looks["kernel_log"], "lines": lines}
    for adapter in looks["rdma"]["devices"].values():
        for port in adapter["ports"].values():
            # Defaults of most cases: the default partition, and its subnet manager.
            infiniband = port["link_layer"] == "InfiniBand"
            port.setdefault("pkeys", {"0": "0xffff"})
            port.setdefault("sm_lid", "0x1" if infiniband else "0x0")
    for device in looks["pci"]["devices"].values():
        if "acs" in device:
            device["configuration"] = configuration(device["acs"])
    return looks, request
