"""Whether RDMA adapters can reach the GPUs' memory, and if not, why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from .rdma import active_ports, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

DMABUF_KERNEL = (5, 12)
# rdma-core 34 brought ibv_reg_dmabuf_mr (its libibverbs/libibverbs.map.in, IBVERBS_1.12).
DMABUF_RELEASE = 34
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
# Data sheets and NVIDIA's guide to GPUDirect RDMA have it for professional GPUs alone; of GB10 NVIDIA says that neither
# nvidia-peermem nor DMA-BUF works (forums.developer.nvidia.com, "DGX Spark GPUDirect RDMA", 348787).
WITHOUT = re.compile(r"GeForce|\bGB10\b|TITAN", re.IGNORECASE)

GPUDIRECT_MISSING = Check(
    "rdma.gpudirect.missing",
    seen="stand-in",
    reads="kernel modules, the driver's kind, the kernel's version, rdma-core's release, the models of the GPUs",
    fires="warn: GPUs and active RDMA ports, and neither nvidia_peermem nor DMA-BUF (open driver, kernel 5.12, "
    "rdma-core 34): every message takes the way through the processor's memory (NCCL's GPU troubleshooting guide). "
    "Skipped for GeForce and GB10, which cannot do it. ACS and the IOMMU, which slow or break it, are "
    "pci.acs.redirects and pci.iommu.translates",
    fix="Load it, now and at every start",
    command="sudo modprobe nvidia-peermem && echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
)
CHECKS = (GPUDIRECT_MISSING,)
LOOKS = ("rdma", "host", "verbs", "gpu")


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    models = {each["name"] for each in facts["gpu"]["gpus"] if each.get("name")}
    if why := unused(facts, request):
        yield GPUDIRECT_MISSING.skip(why)
    elif not request["gpus"] or not active_ports(facts):
        yield GPUDIRECT_MISSING.skip("it takes GPUs and an active RDMA port")
    elif models and all(WITHOUT.search(model) for model in models):
        yield GPUDIRECT_MISSING.skip(f"{', '.join(sorted(models))} cannot do it, and NCCL goes without")
    elif not facts["driver"]["loaded"]:
        yield GPUDIRECT_MISSING.skip("the driver of NVIDIA is not loaded")
    elif set(PEERMEM) & set(facts["host"]["modules"]):
        return
    elif why := no_dmabuf(facts):
        yield GPUDIRECT_MISSING.warn(
            request["node"],
            f"RDMA adapters cannot reach the GPUs' memory: nvidia_peermem is not loaded, and {why}",
            observed="neither",
            expected="nvidia_peermem or DMA-BUF",
        )
    elif facts["rdma_verbs"]["release"] is None:
        yield GPUDIRECT_MISSING.skip("the release of rdma-core, on which DMA-BUF depends, cannot be read")


def no_dmabuf(facts: Mapping[str, Any]) -> str:
    """Say what DMA-BUF lacks; nothing where it has all."""
    numbers = re.match(r"(\d+)\.(\d+)", facts["system"]["kernel"])
    release = facts["rdma_verbs"]["release"]
    if not facts["driver"]["open"]:
        return "DMA-BUF needs the open kernel modules"
    if numbers is None or (int(numbers[1]), int(numbers[2])) < DMABUF_KERNEL:
        return "its kernel is older than 5.12"
    if release is not None and release < DMABUF_RELEASE:
        return f"its rdma-core is {release}, and DMA-BUF needs {DMABUF_RELEASE}"
    return ""
