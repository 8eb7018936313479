"""GPUs and RDMA adapters on the PCIe bus: bridges above the devices, link speeds, errors and configuration space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools import files
from ..tools.run import names, read

BUS = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
NVIDIA = "0x10de"
DISPLAY = ("0x0300", "0x0302")
RDMA = "/sys/class/infiniband"
# Only root can read more than the first 64 bytes of a device's configuration.
CONFIGURATION = 4096


def look() -> dict[str, Any]:
    gpus = [
        slot
        for slot in names(BUS)
        if read(f"{BUS}/{slot}/vendor").text.strip() == NVIDIA
        and read(f"{BUS}/{slot}/class").text.strip().startswith(DISPLAY)
    ]
    adapters = {}
    for name in names(RDMA):
        try:
            adapters[name] = Path(f"{RDMA}/{name}/device").resolve(strict=True).name
        except OSError:
            continue
    ends = [*gpus, *adapters.values()]
    above = {slot: bridges(slot) for slot in ends if Path(BUS, slot).exists()}
    return {
        "gpus": gpus,
        "adapters": adapters,
        "above": above,
        "devices": {slot: device(slot) for slot in sorted({*above, *(one for each in above.values() for one in each)})},
        "groups": {slot: group(slot) for slot in gpus},
        "iommus": names("/sys/class/iommu"),
        "command_line": read("/proc/cmdline").text.strip(),
    }


def bridges(slot: str) -> list[str]:
    """Return the bridges above a device, starting at the root. sysfs folders are nested like the bus."""
    parts = Path(BUS, slot).resolve().parts
    return [part for part in parts[:-1] if part.count(":") == 2 and Path(BUS, part).exists()]


def device(slot: str) -> dict[str, Any]:
    folder = f"{BUS}/{slot}"
    keys = (
        "current_link_speed",
        "current_link_width",
        "max_link_speed",
        "max_link_width",
        "numa_node",
        "class",
        "vendor",
    )
    said = {key: read(f"{folder}/{key}").text.strip() for key in keys}
    errors = {kind: read(f"{folder}/aer_dev_{kind}").text for kind in ("correctable", "nonfatal", "fatal")}
    try:
        configuration = files.part(f"{folder}/config", 0, CONFIGURATION)
    except OSError:
        configuration = b""
    return {**said, "errors": errors, "configuration": configuration.hex()}


def group(slot: str) -> str:
    """Return the type of the device's IOMMU group: identity, DMA, DMA-FQ, or "" without an IOMMU."""
    try:
        number = Path(f"{BUS}/{slot}/iommu_group").resolve(strict=True).name
    except OSError:
        return ""
    return read(f"{GROUPS}/{number}/type").text.strip()
