"""Read the current state of a node: Muster's packages and environments, kernel, driver, GPUs and firmware."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.run import names, run
from .environment import UnreadableEnvironmentError, parts

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

DMI = "/sys/class/dmi/id"
BUS = "/sys/bus/pci/devices"
ADAPTERS = "/sys/class/infiniband"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
SMI = ("--query-gpu=uuid,name,vbios_version", "--format=csv,noheader")
SMI_SECONDS = 12.0
DPKG_SECONDS = 10.0
MOST_TEXT = 200
MOST_PACKAGES = 500


def facts(request: Json) -> Json:
    """Return the current state. request: {packages: package names, prefixes: prefixes of package names, environment:
    link of the default environment, named: links of named environments}.

    Parts that could not be inspected are listed only in `unseen`, with the reason.
    """
    unseen: dict[str, str] = {}
    found: Json = {
        "kernel": os.uname().release,
        "boot_id": text("/proc/sys/kernel/random/boot_id"),
        "booted": booted(),
        "driver": text("/sys/module/nvidia/version"),
        "bus": bus(),
        "firmware": firmware(),
    }
    looks: dict[str, Callable[[], Any]] = {
        "gpus": gpus,
        "packages": lambda: packages(request["packages"], request["prefixes"]),
        "environment": lambda: parts(request["environment"]),
        "named": lambda: {name: parts(link) for name, link in request["named"].items()},
    }
    for name, look in looks.items():
        try:
            found[name] = look()
        except UnreadableEnvironmentError as why:
            unseen[name] = str(why)
    return {**found, "unseen": unseen}


def text(path: str) -> str:
    return (files.text(path, most=MOST_TEXT) or "").strip()


def booted() -> float:
    """Return the wall-clock start time of PID 1 in seconds; in a container, PID 1 is the container's own."""
    stat = text("/proc/1/stat").rpartition(") ")[2].split()
    try:
        ago = time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return 0.0
    return time.time() - ago


def bus() -> list[str]:
    """Return the address and device ID of each NVIDIA GPU on the PCI bus, independent of the driver."""
    found = []
    for address in names(BUS):
        vendor, kind = text(f"{BUS}/{address}/vendor"), text(f"{BUS}/{address}/class")
        if vendor == NVIDIA and kind.startswith(GPU_CLASSES):
            found.append(f"{address} {text(f'{BUS}/{address}/device')}")
    return found


def gpus() -> dict[str, str]:
    """Return the name and VBIOS version of each GPU by UUID."""
    if not any(name.startswith("nvidia") and name[6:].isdecimal() for name in names("/dev")):
        return {}
    listed = run("nvidia-smi", *SMI, seconds=SMI_SECONDS)
    if listed.code != 0:
        raise UnreadableEnvironmentError(listed.why)
    rows = [line.split(", ") for line in listed.text.splitlines()]
    return {row[0][:MOST_TEXT]: f"{row[1]}, VBIOS {row[2]}"[:MOST_TEXT] for row in rows if len(row) == 3}


def firmware() -> dict[str, str]:
    """Return the BIOS version, and the firmware version of each InfiniBand and RoCE adapter."""
    found = {"BIOS": " ".join(filter(None, (text(f"{DMI}/bios_{part}") for part in ("vendor", "version", "date"))))}
    for adapter in names(ADAPTERS)[:64]:
        found[f"adapter {adapter}"] = text(f"{ADAPTERS}/{adapter}/fw_ver")
    return {name: version for name, version in found.items() if version}


def packages(wanted: list[str], prefixes: list[str]) -> dict[str, str]:
    """Return the versions of installed packages that have one of these names or prefixes."""
    listed = run("dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Package} ${Version}\n", seconds=DPKG_SECONDS)
    if listed.code != 0:
        raise UnreadableEnvironmentError(listed.why)
    found: dict[str, str] = {}
    for line in listed.text.splitlines():
        with suppress(ValueError):
            state, name, version = line.split()
            # The second letter is the state: installed or partly installed, not removed.
            if state[1:2] in ("i", "W", "t") and (name in wanted or name.startswith(tuple(prefixes))):
                found[name] = version
    return dict(sorted(found.items())[:MOST_PACKAGES])
