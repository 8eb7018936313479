#!/usr/bin/python3
"""Stand-in for nvidia-smi, of Muster's tests: it answers as the real one does, from what the stand-in of a GPU shows.

Its lines and its exit codes are those of nvidia-smi 580; it says on stderr what it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LIBRARY = "@VERSION@"
LOADED = Path("/sys/module/nvidia/version")
BUS = Path("/sys/bus/pci/devices")
MODE = Path("/run/nvidia-persistenced/standin-mode")
SETTINGS = Path("/etc/standin-gpu.json")
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def gpus() -> list[dict[str, str]]:
    names = json.loads(SETTINGS.read_text())["names"]
    slots = [slot for slot in sorted(BUS.iterdir()) if (slot / "class").read_text().startswith("0x0302")]
    persistent = "Enabled" if MODE.exists() and MODE.read_text() == "on" else "Disabled"
    found = []
    for index, slot in enumerate(slots):
        # The real one writes eight digits for the domain.
        bus = f"0000{slot.name}".upper()
        found.append(
            {
                "index": str(index),
                "name": names.get((slot / "device").read_text().strip(), "NVIDIA Graphics Device"),
                "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
                "serial": f"{index:013d}",
                "driver_version": LIBRARY,
                "count": str(len(slots)),
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


def main() -> int:
    sys.stderr.write("nvidia-smi: a stand-in of Muster's tests, there is no GPU here\n")
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
    elif "--query-compute-apps" in options:
        sys.stdout.write("")
    else:
        sys.stdout.write(f"| NVIDIA-SMI {LIBRARY}    Driver Version: {LIBRARY}    CUDA Version: 13.0 |\n")
        sys.stdout.writelines(f"| {gpu['index']}  {gpu['name']}  {gpu['pci.bus_id']} |\n" for gpu in gpus())
    return 0


if __name__ == "__main__":
    sys.exit(main())
