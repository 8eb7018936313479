"""Who takes part: each rank says what it is, and on what it runs."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from .context import Context


def machine() -> str:
    """What tells two machines apart, containers included: their boot and their network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def world(context: Context) -> dict[str, Any]:
    return {
        "rank": context.rank,
        "local_rank": context.local_rank,
        "node_rank": context.node_rank,
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
        "hostname": socket.gethostname(),
        "machine": machine(),
        "device": torch.cuda.get_device_name(context.device) if context.device.type == "cuda" else "cpu",
        "gpu_uuid": gpu_uuid(context),
        **used(context),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda or "",
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if context.device.type == "cuda" else "",
            "driver": driver(),
        },
    }


def gpu_uuid(context: Context) -> str:
    return uuid_of(context.device)


def uuid_of(device: torch.device) -> str:
    """As nvidia-smi has it; nothing without a GPU, and with a torch that does not tell it (2.3 does not)."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None) if device.type == "cuda" else None
    return f"GPU-{uuid}" if uuid else ""


def used(context: Context) -> dict[str, Any]:
    """Where the rank's tensors are to be, and where those are that only say "cuda", as most training code does."""
    if context.device.type != "cuda":
        return {}
    device = torch.ones(1, device="cuda").device
    return {"gpu_index": context.device.index, "used_index": device.index, "used_uuid": uuid_of(device)}


def driver() -> str:
    """The version of NVIDIA's kernel module; nothing where there is none."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()[:40]
    except OSError:
        return ""
