#!/usr/bin/python3
"""Stub of nvidia-smi for Muster's tests: prints the state of the simulated GPUs in the format of the real program.

Lines, elements and exit codes are those of nvidia-smi 580. A note on stderr identifies the stub. A file on the node
defines faults of the GPUs (put_scenario in gpu_node.py). Without the file, all GPUs are healthy.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from string import Template
from typing import Any

LIBRARY = "@VERSION@"
LOADED = Path("/sys/module/nvidia/version")
BUS = Path("/sys/bus/pci/devices")
MODE = Path("/run/nvidia-persistenced/standin-mode")
SETTINGS = Path("/etc/standin-gpu.json")
SCENARIO = Path("/etc/standin-gpu-scenario.json")
GPU_XML = Path("/usr/share/muster-standins/nvidia_smi_gpu.xml")
FABRIC_MANAGER = Path("/run/nv-fabricmanager/nv-fabricmanager.pid")
# NVLink 4 of an H100: links per GPU, and the speed of each link.
LINKS = 18
SPEED = "26.562 GB/s"
COMPLETED = {
    "fabric_state": "Completed",
    "fabric_status": "Success",
    "fabric_clique": "0",
    "fabric_uuid": "00000000-0000-0000-0000-000000000000",
    "health_summary": "Healthy",
    "health_bandwidth": "Full",
    "health_route_recovery_in_progress": "False",
    "health_route_unhealthy": "False",
    "health_access_timeout_recovery": "False",
    "health_incorrect_configuration": "None",
}
TOPOLOGY_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)


def scenario() -> dict[str, Any]:
    wrong: dict[str, Any] = json.loads(SCENARIO.read_text()) if SCENARIO.exists() else {}
    return wrong


def gpus() -> list[dict[str, str]]:
    names = json.loads(SETTINGS.read_text())["names"]
    slots = [slot for slot in sorted(BUS.iterdir()) if (slot / "class").read_text().startswith("0x0302")]
    persistent = "Enabled" if MODE.exists() and MODE.read_text() == "on" else "Disabled"
    lost = scenario().get("lost", [])
    found = []
    for index, slot in enumerate(slots):
        if index in lost:
            continue
        # The real nvidia-smi prints eight digits for the domain.
        bus = f"0000{slot.name}".upper()
        found.append(
            {
                "index": str(index),
                "name": names.get((slot / "device").read_text().strip(), "NVIDIA Graphics Device"),
                "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
                "serial": f"{index:013d}",
                "driver_version": LIBRARY,
                "count": str(len(slots) - len(lost)),
                "pci_bus": slot.name[5:7].upper(),
                "pci.device_id": (slot / "device").read_text().strip().upper().replace("0X", "0x") + "10DE",
                "persistence_mode": persistent,
                "pci.bus_id": bus,
                "gpu_bus_id": bus,
                "memory.total": "81559 MiB",
                "memory.used": "1 MiB",
                "memory.free": "81076 MiB",
                "utilization.gpu": "0 %",
                "temperature.gpu": "31",
                "ecc.mode.current": "Enabled",
                "mig.mode.current": "Disabled",
                "compute_mode": "Default",
                "compute_cap": "9.0",
            }
        )
    return found


def query(fields: list[str], form: list[str]) -> str:
    lines = [] if "noheader" in form else [", ".join(fields)]
    for gpu in gpus():
        values = [gpu.get(field, "[N/A]") for field in fields]
        if "nounits" in form:
            values = [value.removesuffix(" MiB").removesuffix(" %") for value in values]
        lines.append(", ".join(values))
    return "\n".join(lines)


def fabric() -> dict[str, str]:
    """Return the fabric state of the GPUs. If there are NVSwitches, the fabric manager sets the state."""
    nothing = dict.fromkeys(COMPLETED, "N/A")
    if not any((slot / "class").read_text().startswith("0x0680") for slot in BUS.iterdir()):
        return nothing
    return COMPLETED if FABRIC_MANAGER.exists() else {**nothing, "fabric_state": "In Progress"}


def xml() -> str:
    template = Template(GPU_XML.read_text())
    remapped = scenario().get("remap_pending", [])
    entries = []
    listed = gpus()
    for gpu in listed:
        pending = int(gpu["index"]) in remapped
        values = {
            **{name.replace(".", "_"): value for name, value in gpu.items()},
            "bus_id": gpu["pci.bus_id"],
            "pci_device_id": gpu["pci.device_id"].removeprefix("0x"),
            "board": f"{gpu['pci_bus'].lower()}00",
            "module": str(int(gpu["index"]) + 1),
            "remap_pending": "Yes" if pending else "No",
            "dram_uncorrectable": "1" if pending else "0",
            "recovery_action": "Drain and Reset" if pending else "None",
            **fabric(),
        }
        entries.append(template.substitute(values))
    head = (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>{time.strftime('%a %b %e %H:%M:%S %Y')}</timestamp>\n"
        f"\t<driver_version>{LIBRARY}</driver_version>\n\t<cuda_version>13.0</cuda_version>\n"
        # A lost GPU is counted but not listed.
        f"\t<attached_gpus>{len(listed) + len(scenario().get('lost', []))}</attached_gpus>\n"
    )
    return head + "\n".join(entries) + "\n</nvidia_smi_log>\n"


def topology() -> str:
    active = {f"GPU{gpu['index']}": LINKS - len(inactive_links(gpu)) for gpu in gpus()}
    header = "\t".join([*active, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [f"\t\x1b[4m{header}\x1b[0m"]
    for name, own in active.items():
        cells = [" X " if peer == name else f"NV{min(own, others)}" for peer, others in active.items()]
        lines.append("\t".join([name, *cells, "0-1", "0", "", "N/A"]))
    return "\n".join(lines) + "\n" + TOPOLOGY_LEGEND


def inactive_links(gpu: dict[str, str]) -> list[int]:
    listed: list[int] = scenario().get("inactive_links", {}).get(gpu["index"], [])
    return listed


def links(errors: bool) -> str:
    text = ""
    for gpu in gpus():
        text += f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n"
        inactive = inactive_links(gpu)
        for link in range(LINKS):
            active = link not in inactive
            if errors and active:
                text += "".join(f"\t Link {link}: {kind} Errors: 0\n" for kind in ("Replay", "Recovery", "CRC"))
                text += "\n"
            elif not errors:
                text += f"\t Link {link}: {SPEED if active else '<inactive>'}\n"
    return text


def main() -> int:
    sys.stderr.write("nvidia-smi: a stub of Muster's tests, there is no GPU\n")
    wrong = scenario()
    # Hangs like a process that waits for the driver.
    while wrong.get("hangs"):
        time.sleep(3600)
    sys.stdout.write(wrong.get("says_first", ""))
    for index in wrong.get("lost", []):
        sys.stderr.write(f"Unable to determine the device handle for GPU{index}: {index}: GPU is lost.  ")
        sys.stderr.write("Reboot the system to recover this GPU\n\n\n")
    if "--version" in sys.argv[1:]:
        sys.stdout.write(f"NVIDIA-SMI version  : {LIBRARY}\nNVML version        : {LIBRARY.rpartition('.')[0]}\n")
        return 0
    if not LOADED.exists():
        sys.stdout.write(NOT_LOADED)
        return 9
    if LOADED.read_text().strip() != LIBRARY:
        short = ".".join(LIBRARY.split(".")[:2])
        sys.stdout.write(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n")
        return 18
    options = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if "-L" in options or "--list-gpus" in options:
        sys.stdout.writelines(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n" for gpu in gpus())
    elif "--query-gpu" in options:
        sys.stdout.write(query(options["--query-gpu"].split(","), options.get("--format", "csv").split(",")) + "\n")
    elif {"-q", "-x"} <= options.keys():
        sys.stdout.write(xml())
    elif sys.argv[1:] == ["topo", "-m"]:
        sys.stdout.write(topology())
    elif sys.argv[1:2] == ["nvlink"]:
        sys.stdout.write(links(errors="-e" in options))
    elif "--query-compute-apps" in options:
        sys.stdout.write("")
    else:
        sys.stdout.write(f"| NVIDIA-SMI {LIBRARY}    Driver Version: {LIBRARY}    CUDA Version: 13.0 |\n")
        sys.stdout.writelines(f"| {gpu['index']}  {gpu['name']}  {gpu['pci.bus_id']} |\n" for gpu in gpus())
    return 0


if __name__ == "__main__":
    sys.exit(main())
