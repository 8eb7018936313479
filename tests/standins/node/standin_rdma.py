#!/usr/bin/python3
"""Simulate RDMA adapters for Muster's tests by providing their sysfs files.

The program reads /etc/standin-rdma.json: {device: {slot, layer, rate, state, driver, pkeys}}. It runs once, and the
files disappear at the next boot.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

SETTINGS = Path("/etc/standin-rdma.json")
REAL = Path("/run/standin-rdma/sys")
CLASS = Path("/sys/class")
CLASSES = {"InfiniBand": "0x020700", "Ethernet": "0x020000"}


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def show_class() -> None:
    """Mount over /sys/class a folder that has the same content and allows an additional class."""
    REAL.mkdir(parents=True)
    # All of /sys, because links in /sys/class point to ../../devices.
    mount("--rbind", "/sys", str(REAL))
    mount("-t", "tmpfs", "-o", "mode=0755", "standin-rdma", str(CLASS))
    for path in (REAL / "class").iterdir():
        if path.name != "infiniband":
            (CLASS / path.name).symlink_to(path)


def show(name: str, about: dict[str, str]) -> None:
    slot = Path("/sys/bus/pci/devices", about["slot"])
    slot.mkdir(parents=True)
    driver = Path("/sys/bus/pci/drivers", about["driver"])
    driver.mkdir(parents=True, exist_ok=True)
    (slot / "driver").symlink_to(f"../../drivers/{driver.name}")
    for key, value in (("vendor", "0x15b3"), ("device", "0x1021"), ("class", CLASSES[about["layer"]])):
        (slot / key).write_text(value + "\n")
    device = CLASS / "infiniband" / name
    port = device / "ports/1"
    for folder in ("gids", "pkeys"):
        (port / folder).mkdir(parents=True)
    (device / "device").symlink_to(slot)
    (port / "state").write_text(f"{about['state']}\n")
    (port / "link_layer").write_text(f"{about['layer']}\n")
    (port / "rate").write_text(f"{about['rate']}\n")
    (port / "gids/0").write_text("fe80:0000:0000:0000:0000:0000:0000:0001\n")
    for number, key in enumerate(about["pkeys"]):
        (port / "pkeys" / str(number)).write_text(f"{key}\n")


def main() -> None:
    show_class()
    for name, about in json.loads(SETTINGS.read_text()).items():
        show(name, about)


if __name__ == "__main__":
    main()
