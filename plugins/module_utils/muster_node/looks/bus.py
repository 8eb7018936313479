"""NVIDIA devices and other vendors' GPUs on the PCI bus, read from sysfs. Unlike nvidia-smi, sysfs cannot hang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import names, read

BUS = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
# VGA, 3D and other display controllers, and processing accelerators such as AMD's MI300.
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
# The paths of Debian's pci.ids package and of others.
PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


def look() -> dict[str, Any]:
    devices, others = {}, {}
    slots = names(BUS)
    for slot in slots:
        folder = f"{BUS}/{slot}"
        vendor = read(f"{folder}/vendor").text.strip()
        if vendor != NVIDIA:
            kind = read(f"{folder}/class").text.strip()
            if kind.startswith(GPU_CLASSES):
                others[slot] = {"vendor": vendor, "class": kind}
            continue
        try:
            driver = Path(f"{folder}/driver").readlink().name
        except OSError:
            driver = ""
        devices[slot] = {
            "device": read(f"{folder}/device").text.strip(),
            "class": read(f"{folder}/class").text.strip(),
            "driver": driver,
        }
    catalogue = next((text for path in PCI_IDS if devices and (text := read(path).text)), "")
    return {
        "devices": devices,
        "others": others,
        "why": "" if slots else f"{BUS} is empty or cannot be read",
        "catalogue": catalogue,
        "driver_version": read("/proc/driver/nvidia/version").text,
        "modules": read("/proc/modules").text,
    }
