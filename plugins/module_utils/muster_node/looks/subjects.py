"""The data collectors of a node's health. Written by script/subjects.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    mounts,
    next_boot,
    pci,
    published,
    ras,
    rdma,
    roce,
    services,
    system,
    unit,
    users,
    verbs,
)

if TYPE_CHECKING:
    from types import ModuleType

LOOKS: dict[str, ModuleType] = {
    "clock": clock,
    "code": code,
    "collective": collective,
    "disk": disk,
    "ethernet": ethernet,
    "gpu": gpu,
    "host": host,
    "jobs": jobs,
    "kernel_log": kernel_log,
    "listeners": listeners,
    "mounts": mounts,
    "next_boot": next_boot,
    "pci": pci,
    "published": published,
    "ras": ras,
    "rdma": rdma,
    "roce": roce,
    "services": services,
    "system": system,
    "unit": unit,
    "users": users,
    "verbs": verbs,
}
