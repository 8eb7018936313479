"""Collect data on a node's GPUs from four nvidia-smi queries, the PCI bus, the driver and the fabric manager.

nvidia-smi would load the kernel module, and data collection must not start anything. Therefore nvidia-smi runs only if
the module is loaded. The four queries run in parallel, because a GPU that has fallen off the bus can block each query.
"""

from __future__ import annotations

import os
import platform
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..tools import files, process
from ..tools.run import read, run
from . import system
from .bus import BUS
from .bus import look as look_at_bus

QUESTIONS = {
    "query": ("-q", "-x"),
    "topology": ("topo", "-m"),
    "nvlink_status": ("nvlink", "-s"),
    "nvlink_errors": ("nvlink", "-e"),
}
# Eight GPUs without persistence take this long for the first query.
SECONDS = 30.0
# The path of Windows' nvidia-smi under WSL, which has no module to load.
WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"
# Folders of the machine's architecture: other folders may have 32-bit libraries.
FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib")
FABRIC_UNIT = "nvidia-fabricmanager.service"
IMEX_UNIT = "nvidia-imex.service"
FABRIC_LOG = "/var/log/fabricmanager.log"
MOST_OF_THE_LOG = 200_000
DISPLAY = "0x03"


def look(seconds: float = SECONDS) -> dict[str, Any]:
    """Collect the data. seconds: timeout of nvidia-smi."""
    bus = look_at_bus()
    loaded = read("/sys/module/nvidia/version").text.strip()
    # Before nvidia-smi starts, which opens the devices, too.
    holders = driver_holders()
    with ThreadPoolExecutor(max_workers=8) as pool:
        program = WSL_SMI if Path(WSL_SMI).exists() else "nvidia-smi"
        asked = bool(loaded or bus["driver_version"]) or program == WSL_SMI
        smi = {name: pool.submit(_ask, program, argv, seconds) for name, argv in QUESTIONS.items() if asked}
        virt = pool.submit(system.virtualization)
        on_disk = pool.submit(run, "modinfo", "-F", "version", "nvidia")
        fabric_manager = pool.submit(_fabric_manager)
        smi_answers = {name: answer.result() for name, answer in smi.items()}
    pids = {int(pid) for pid in re.findall(r"<pid>\s*(\d+)\s*</pid>", smi_answers.get("query", {}).get("text", ""))}
    return {
        **bus,
        "devices": {slot: {**device, **_on_the_bus(slot, device)} for slot, device in bus["devices"].items()},
        "loaded": loaded,
        "library": _library(),
        "smi": smi_answers or None,
        "virt": virt.result().text,
        "on_disk": on_disk.result().text.strip(),
        "fabric_manager": fabric_manager.result(),
        **holders,
        "processes": {str(pid): process.known(pid) for pid in sorted(pids)},
        "uptime": read("/proc/uptime").text,
    }


def _ask(program: str, argv: tuple[str, ...], seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    answer = run(program, *argv, seconds=seconds)
    return {
        "text": answer.text,
        "aside": answer.aside,
        "why": answer.why,
        "code": answer.code,
        "seconds": round(time.monotonic() - began, 2),
    }


def _on_the_bus(slot: str, device: dict[str, str]) -> dict[str, str]:
    """Return the PCIe link, slot and errors of a GPU; {} for other devices.

    The bridge above the GPU describes the slot. The device describes only itself.
    """
    if not device["class"].startswith(DISPLAY):
        return {}
    folder = f"{BUS}/{slot}"
    try:
        # Every user can read the first 64 bytes; a lost device reads as all ones.
        head = files.part(f"{folder}/config", 0, 4).hex()
    except OSError:
        head = ""
    links = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
    errors = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
    said = {name: read(f"{folder}/{name}").text.strip() for name in ("numa_node", *links, *errors)}
    above = Path(folder).resolve().parent
    slot_links = {f"slot_{name}": read(f"{above}/{name}").text.strip() for name in links[2:]}
    return {"config": head, **said, **slot_links}


def _library() -> str:
    """Return the target of the link libnvidia-ml.so.1. The file name ends with the version."""
    there = (Path(folder, "libnvidia-ml.so.1") for folder in FOLDERS)
    return next((path.resolve().name for path in there if path.exists()), "")


def _fabric_manager() -> dict[str, Any]:
    unit = run("systemctl", "show", "--property=LoadState,ActiveState,UnitFileState", FABRIC_UNIT)
    imex = run("systemctl", "show", "--property=LoadState,ActiveState", IMEX_UNIT)
    version = run("nv-fabricmanager", "--version")
    log, log_why = "", ""
    try:
        log = files.part(FABRIC_LOG, -MOST_OF_THE_LOG, MOST_OF_THE_LOG, links=True).decode("utf-8", "replace")
    except FileNotFoundError:
        pass
    except OSError as error:
        log_why = f"{FABRIC_LOG}: {error.strerror}"
    return {
        "unit": unit.text,
        "unit_why": unit.why,
        "imex": imex.text,
        "version": version.text,
        "version_why": version.why,
        "log": log,
        "log_why": log_why,
    }


def driver_holders() -> dict[str, Any]:
    """Return all processes that have the GPU devices open. Only root can see open files of other users."""
    holders = []
    for pid in process.ids():
        devices = sorted(path for path in process.opened(pid) if path.startswith("/dev/nvidia"))
        if devices:
            holders.append({**process.known(pid), "devices": devices})
    return {"holders": holders, "saw_all_holders": os.geteuid() == 0}
