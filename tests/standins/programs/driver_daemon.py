#!/usr/bin/python3
"""Stub of a daemon of NVIDIA's driver for Muster's tests. It has the same start conditions and opens the same
devices."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

NAME = "@NAME@"
VERSION = "@VERSION@"
LOADED = Path("/sys/module/nvidia/version")
BUS = Path("/sys/bus/pci/devices")
FOLDER = Path("/run", NAME)


def complaint() -> str:
    """Return the reason why the real daemon would not start, or ""."""
    if not LOADED.exists():
        return "failed to initialize: no NVIDIA devices, or the kernel driver is not loaded"
    loaded = LOADED.read_text().strip()
    if loaded != VERSION and NAME == "nvidia-persistenced":
        return f"Failed to query NVIDIA devices: the kernel driver is {loaded}, and this is {VERSION}"
    if loaded != VERSION:
        return (
            f"fabric manager NVIDIA GPU driver interface version {VERSION} don't match with driver version {loaded}. "
            "Please update with matching NVIDIA driver package."
        )
    switches = [slot for slot in BUS.iterdir() if (slot / "class").read_text().startswith("0x0680")]
    if NAME == "nv-fabricmanager" and not switches:
        return "failed to initialize all required NVSwitch devices: there is none"
    return ""


def main() -> None:
    if "--version" in sys.argv and NAME == "nv-fabricmanager":
        sys.stdout.write(f"Fabric Manager version is : {VERSION}\n")
        return
    why = complaint()
    if why:
        sys.exit(f"{NAME}: {why}")
    sys.stdout.write(f"{NAME} {VERSION}: a stub of Muster's tests\n")
    sys.stdout.flush()
    FOLDER.mkdir(exist_ok=True)
    # Like the real daemon, off by default.
    (FOLDER / "standin-mode").write_text("on" if "--persistence-mode" in sys.argv else "off")
    pid = os.fork()
    if pid:
        (FOLDER / f"{NAME}.pid").write_text(f"{pid}\n")
        return
    os.setsid()
    pattern = "nvidia-nvswitch*" if NAME == "nv-fabricmanager" else "nvidia[0-9]*"
    held = [path.open("rb") for path in (*Path("/dev").glob(pattern), *Path("/dev").glob("nvidiactl"))]
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for device in held:
        device.close()
    shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    # Before the fork, so that a stop right after the start is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
