"""Check whether RDMA adapters can access GPU memory (GPUDirect RDMA)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from .rdma import active_ports, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

DMABUF_KERNEL = (5, 12)
# rdma-core 34 added ibv_reg_dmabuf_mr (its libibverbs/libibverbs.map.in, IBVERBS_1.12).
DMABUF_RELEASE = 34
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
# NVIDIA's data sheets and GPUDirect RDMA guide list professional GPUs only; on GB10 neither nvidia-peermem nor DMA-BUF
# works, according to NVIDIA (forums.developer.nvidia.com, "DGX Spark GPUDirect RDMA", 348787).
WITHOUT = re.compile(r"GeForce|\bGB10\b|TITAN", re.IGNORECASE)

GPUDIRECT_MISSING = Check(
    "rdma.gpudirect.missing",
    seen="stand-in",
    reads="the kernel modules, the driver flavour, the versions of the kernel and rdma-core, and the GPU models",
    fires="warn: the node has GPUs and active RDMA ports, but neither nvidia_peermem nor DMA-BUF (requires the open "
    "driver, kernel 5.12 and rdma-core 34), so every message is copied through host memory (NCCL's GPU troubleshooting "
    "guide). Skipped for GeForce and GB10, which do not support GPUDirect RDMA. pci.acs.redirects and "
    "pci.iommu.translates check the ACS and IOMMU settings that slow or break GPUDirect RDMA",
    fix="Use DMA-BUF (open kernel modules, kernel 5.12, rdma-core 34). If that is not possible, load nvidia-peermem, "
    "which NVIDIA has deprecated, with",
    command="sudo modprobe nvidia-peermem && echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
)
CHECKS = (GPUDIRECT_MISSING,)
LOOKS = ("rdma", "host", "verbs", "gpu")


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    models = {each["name"] for each in facts["gpu"]["gpus"] if each.get("name")}
    if why := unused(facts, request):
        yield GPUDIRECT_MISSING.skip(why)
    elif not request["gpus"] or not active_ports(facts):
        yield GPUDIRECT_MISSING.skip("GPUDirect RDMA requires GPUs and an active RDMA port")
    elif models and all(WITHOUT.search(model) for model in models):
        yield GPUDIRECT_MISSING.skip(f"{', '.join(sorted(models))} does not support GPUDirect RDMA")
    elif not facts["driver"]["loaded"]:
        yield GPUDIRECT_MISSING.skip("the NVIDIA driver is not loaded")
    elif set(PEERMEM) & set(facts["host"]["modules"]):
        return
    elif why := no_dmabuf(facts):
        yield GPUDIRECT_MISSING.warn(
            request["node"],
            f"RDMA adapters cannot access GPU memory: nvidia_peermem is not loaded, and {why}",
            observed="neither",
            expected="nvidia_peermem or DMA-BUF",
        )
    elif facts["rdma_verbs"]["release"] is None:
        yield GPUDIRECT_MISSING.skip("the rdma-core version, which DMA-BUF depends on, cannot be read")


def no_dmabuf(facts: Mapping[str, Any]) -> str:
    """Return which requirement of DMA-BUF is not met; "" if all are met."""
    numbers = re.match(r"(\d+)\.(\d+)", facts["system"]["kernel"])
    release = facts["rdma_verbs"]["release"]
    if not facts["driver"]["open"]:
        return "DMA-BUF requires the open kernel modules"
    if numbers is None or (int(numbers[1]), int(numbers[2])) < DMABUF_KERNEL:
        return "DMA-BUF requires kernel 5.12"
    if release is not None and release < DMABUF_RELEASE:
        return f"DMA-BUF requires rdma-core {DMABUF_RELEASE} ({release} is installed)"
    return ""
