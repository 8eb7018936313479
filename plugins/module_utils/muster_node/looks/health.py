"""Everything that a node's health is judged from, looked at side by side: most of it waits for programs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import (
    clock,
    code,
    collective,
    disk,
    ethernet,
    gpu,
    host,
    jobs,
    kernel_log,
    listeners,
    pci,
    published,
    ras,
    rdma,
    services,
    unit,
    users,
)
from . import system as look_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The options of nccl_health, which say what is looked at and how it is judged.
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"type": "str", "required": True} for name in ("node", "user", "address", "torchrun")},
    "interface": {"type": "str", "default": ""},
    "gpus": {"type": "int", "default": 0},
    "gpu_model": {"type": "str", "default": ""},
    "nproc": {"type": "int", "default": 1},
    "backend": {"type": "str", "choices": ["gloo", "nccl"], "default": "gloo"},
    "port": {"type": "int", "default": 29500},
    "head": {"type": "bool", "default": False},
    "run_root": {"type": "str", "default": "/var/lib/muster/launches"},
    "code": {"type": "list", "elements": "str", "default": []},
    "collective": {"type": "bool", "default": False},
    "allow": {"type": "list", "elements": "dict", "default": []},
}
# What grows is known from two readings of the same counters, so far apart at least.
BETWEEN = 0.3


def look(request: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """request: the options of nccl_health. properties: those of a launch's unit."""
    began = time.monotonic()
    system = look_system.look()
    root = bool(system["root"])
    first = {"ethernet": ethernet.look(request["interface"], request["address"]), "rdma": rdma.look()}
    load = request["backend"] == "nccl" and request["gpus"] > 0
    ways: dict[str, Callable[[], Any]] = {
        "unit": lambda: unit.look(request["user"], request["torchrun"], load, properties),
        "kernel_log": kernel_log.look,
        "gpu": gpu.look,
        "host": host.look,
        "services": lambda: services.look(root),
        "listeners": listeners.look,
        "published": lambda: published.look(root),
        "jobs": jobs.look,
        "pci": pci.look,
        "code": lambda: code.look(request["code"]),
        "clock": clock.look,
        "disk": lambda: disk.look([request["run_root"]]),
        "users": lambda: users.look(request["user"]),
    }
    with ThreadPoolExecutor(max_workers=len(ways)) as pool:
        started = {name: pool.submit(way) for name, way in ways.items()}
        looks = {name: answer.result() for name, answer in started.items()}
    listening = looks["listeners"]["ss"]
    looks["port_holders"] = jobs.holders(listening, request["port"])
    looks["ras"] = ras.look(listening)
    looks["collective"] = _collective(request, looks, first["ethernet"]["name"], properties)
    time.sleep(max(0.0, BETWEEN - (time.monotonic() - began)))
    links = {name: ethernet.counters(name) for name in first["ethernet"]["links"]}
    return {"system": system, **first, **looks, "later": {"ethernet": links, "rdma": rdma.all_counters()}}


def _collective(
    request: Mapping[str, Any], looks: Mapping[str, Any], interface: str, properties: Mapping[str, str]
) -> dict[str, Any]:
    why = ""
    if not request["collective"]:
        why = "it was not asked for (health_collective)"
    elif looks["jobs"]["processes"]:
        why = "a job runs on the node, and would be disturbed"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    return collective.look(request, interface, properties)
