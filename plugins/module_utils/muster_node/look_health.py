"""Everything that a node's health is told from, looked at side by side: most of it waits for programs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import (
    look_clock,
    look_code,
    look_collective,
    look_disk,
    look_ethernet,
    look_fabric,
    look_gpu,
    look_host,
    look_jobs,
    look_kernel_log,
    look_listeners,
    look_pci_tree,
    look_published,
    look_ras,
    look_services,
    look_system,
    look_unit,
    look_users,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What grows is told from two readings of the same counters, so far apart at least.
BETWEEN = 0.3


def look(wish: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """wish: the options of nccl_health. properties: those of a launch's unit."""
    began = time.monotonic()
    system = look_system.look()
    root = bool(system["root"])
    first = {"ethernet": look_ethernet.look(wish["interface"], wish["address"]), "rdma": look_fabric.look()}
    load = wish["backend"] == "nccl" and wish["gpus"] > 0
    ways: dict[str, Callable[[], Any]] = {
        "unit": lambda: look_unit.look(wish["user"], wish["torchrun"], load, properties),
        "kernel_log": look_kernel_log.look,
        "gpu": look_gpu.look,
        "host": look_host.look,
        "services": lambda: look_services.look(root),
        "listeners": look_listeners.look,
        "published": lambda: look_published.look(root),
        "jobs": look_jobs.look,
        "pci": look_pci_tree.look,
        "code": lambda: look_code.look(wish["code"]),
        "clock": look_clock.look,
        "disk": lambda: look_disk.look([wish["run_root"]]),
        "users": lambda: look_users.look(wish["user"]),
    }
    with ThreadPoolExecutor(max_workers=len(ways)) as pool:
        started = {name: pool.submit(way) for name, way in ways.items()}
        looks = {name: answer.result() for name, answer in started.items()}
    listening = looks["listeners"]["ss"]
    looks["port_holders"] = look_jobs.holders(listening, wish["port"])
    looks["ras"] = look_ras.look(listening)
    looks["collective"] = _collective(wish, looks, first["ethernet"]["name"], properties)
    time.sleep(max(0.0, BETWEEN - (time.monotonic() - began)))
    links = {name: look_ethernet.counters(name) for name in first["ethernet"]["links"]}
    return {"system": system, **first, **looks, "later": {"ethernet": links, "rdma": look_fabric.all_counters()}}


def _collective(
    wish: Mapping[str, Any], looks: Mapping[str, Any], interface: str, properties: Mapping[str, str]
) -> dict[str, Any]:
    why = ""
    if not wish["collective"]:
        why = "it was not asked for (health_collective)"
    elif looks["jobs"]["processes"]:
        why = "a job runs on the node, and would be disturbed"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    return look_collective.look(wish, interface, properties)
