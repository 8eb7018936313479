"""The subjects of a node's health. Written by script/subjects.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    code,
    collective,
    environment,
    ethernet,
    gpu,
    gpudirect,
    host,
    jobs,
    kernel_log,
    limits,
    mounts,
    next_boot,
    pci,
    ras,
    rdma,
    rdma_addresses,
    rdma_verbs,
    roce,
    software,
)

if TYPE_CHECKING:
    from types import ModuleType

SUBJECTS: dict[str, ModuleType] = {
    "code": code,
    "collective": collective,
    "environment": environment,
    "ethernet": ethernet,
    "gpu": gpu,
    "gpudirect": gpudirect,
    "host": host,
    "jobs": jobs,
    "kernel_log": kernel_log,
    "limits": limits,
    "mounts": mounts,
    "next_boot": next_boot,
    "pci": pci,
    "ras": ras,
    "rdma": rdma,
    "rdma_addresses": rdma_addresses,
    "rdma_verbs": rdma_verbs,
    "roce": roce,
    "software": software,
}
