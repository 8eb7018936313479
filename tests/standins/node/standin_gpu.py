#!/usr/bin/python3
"""Simulate GPUs and a kernel for Muster's tests, at every boot of a sandbox machine.

The newest kernel in /boot is reported as running, unless the GRUB stub selects another kernel by the name of its menu
entry. The nvidia module installed for that kernel is reported as loaded. Each boot starts from scratch, so a reboot
changes the loaded driver, as on a real GPU machine. With the argument config, only the devices' configuration spaces
are rewritten, as after a GPU has fallen off the bus.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/standin-gpu.json")
SCENARIO = Path("/etc/standin-gpu-scenario.json")
SHADOW = Path("/run/standin")
BUS = Path("/sys/bus/pci/devices")
ONCE, PINNED = Path("/boot/grub/standin-once"), Path("/boot/grub/standin-pinned")
GPU = "0x0302"
NVSWITCH = "0x0680"


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def mount_over(path: str, text: str) -> None:
    """Mount a text over a kernel file."""
    file = SHADOW / path.strip("/").replace("/", "_")
    file.write_text(text)
    mount("--bind", str(file), path)


def remove_mounts() -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        source, path = line.split()[:2]
        if source == "standin":
            subprocess.run(["umount", "--lazy", path], check=True)


def booted_kernel() -> str:
    """Return the kernel that is selected for one boot or pinned; by default the newest kernel."""
    for chosen in (ONCE, PINNED):
        if chosen.exists():
            found = re.search(r"gnulinux-(\d.*)-advanced-", chosen.read_text())
            if chosen == ONCE:
                chosen.unlink()
            if found:
                return found[1]
    return newest_kernel()


def newest_kernel() -> str:
    kernels = [path.name.removeprefix("vmlinuz-") for path in Path("/boot").glob("vmlinuz-*")]
    return max(kernels, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def module_version(kernel: str) -> tuple[str, bool]:
    """Return the version of the nvidia module installed for this kernel, and whether it is the open module."""
    # depmod prefers updates to modules of the kernel package.
    places = [f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", f"/lib/modules/{kernel}/kernel/nvidia/nvidia.ko"]
    for place in places:
        if Path(place).exists():
            fields = dict(
                part.split(b"=", 1) for part in Path(place).read_bytes().split(b"\0") if part.count(b"=") == 1
            )
            version = next(value for key, value in fields.items() if key.endswith(b"version"))
            licence = next(value for key, value in fields.items() if key.endswith(b"license"))
            return version.decode(), b"GPL" in licence
    return "", False


def nouveau_kept_out(kernel: str) -> bool:
    """Return whether the kernel's initramfs blacklists nouveau. Otherwise, nouveau would be loaded from the
    initramfs."""
    try:
        with tarfile.open(f"/boot/initrd.img-{kernel}") as image:
            files = [image.extractfile(member) for member in image.getmembers() if member.isfile()]
            texts = [file.read().decode() for file in files if file]
    except FileNotFoundError:
        return False
    return any(re.search(r"^\s*blacklist\s+nouveau\b", text, re.MULTILINE) for text in texts)


def show_bus(devices: list[dict[str, str]], driver: str) -> None:
    mount("-t", "tmpfs", "-o", "mode=0755", "standin", "/sys/bus/pci")
    if driver:
        Path("/sys/bus/pci/drivers", driver).mkdir(parents=True)
    for device in devices:
        folder = BUS / device["slot"]
        folder.mkdir(parents=True)
        for name in ("vendor", "device", "class"):
            (folder / name).write_text(device[name] + "\n")
        (folder / "numa_node").write_text("0\n")
        if device["class"].startswith(GPU):
            for name in ("current", "max"):
                (folder / f"{name}_link_speed").write_text("32.0 GT/s PCIe\n")
                (folder / f"{name}_link_width").write_text("16\n")
        if driver and device["class"].startswith((GPU, NVSWITCH)):
            (folder / "driver").symlink_to(f"../../drivers/{driver}")


def show_config(devices: list[dict[str, str]]) -> None:
    """Provide the start of each device's configuration space. A lost device reads as all ones."""
    lost = json.loads(SCENARIO.read_text()).get("lost", []) if SCENARIO.exists() else []
    gpus = [device["slot"] for device in devices if device["class"].startswith(GPU)]
    for device in devices:
        head = b"".join(int(device[name], 16).to_bytes(2, "little") for name in ("vendor", "device")) + bytes(60)
        gone = device["slot"] in gpus and gpus.index(device["slot"]) in lost
        (BUS / device["slot"] / "config").write_bytes(b"\xff" * 64 if gone else head)


def show_modules(loaded: dict[str, str]) -> None:
    """List the kernel's modules and these additional modules as loaded."""
    listing = Path("/proc/modules")
    if listing.exists():
        ours = "".join(f"{name} 1 0 - Live 0x0000000000000000 (OE)\n" for name in loaded)
        mount_over(str(listing), ours + listing.read_text())
    real = SHADOW / "module"
    real.mkdir()
    mount("--bind", "/sys/module", str(real))
    mount("-t", "tmpfs", "-o", "mode=0755", "standin", "/sys/module")
    for path in real.iterdir():
        Path("/sys/module", path.name).symlink_to(path)
    for name, version in loaded.items():
        Path("/sys/module", name).mkdir()
        if version:
            Path("/sys/module", name, "version").write_text(version + "\n")


def show_driver(devices: list[dict[str, str]], version: str, is_open: bool) -> None:
    mount("-t", "tmpfs", "-o", "mode=0755", "standin", "/proc/driver")
    nvidia = Path("/proc/driver/nvidia")
    nvidia.mkdir()
    kind = "Open Kernel Module for x86_64" if is_open else "x86_64 Kernel Module"
    (nvidia / "version").write_text(f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (stub)\n")
    gpus = [device["slot"] for device in devices if device["class"].startswith(GPU)]
    switches = [device["slot"] for device in devices if device["class"].startswith(NVSWITCH)]
    for slot in gpus:
        (nvidia / "gpus" / slot).mkdir(parents=True)
    for slot in switches:
        Path("/proc/driver/nvidia-nvswitch/devices", slot).mkdir(parents=True)
    files = [f"nvidia{number}" for number in range(len(gpus))] + ["nvidiactl", "nvidia-uvm"]
    files += [f"nvidia-nvswitch{number}" for number in range(len(switches))]
    for name in files:
        path = Path("/dev", name)
        path.touch()
        path.chmod(0o666)


def main() -> None:
    settings: dict[str, Any] = json.loads(SETTINGS.read_text())
    devices = settings["devices"]
    if sys.argv[1:] == ["config"]:
        show_config(devices)
        return
    remove_mounts()
    SHADOW.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=0755", "standin", str(SHADOW))
    kernel = booted_kernel()
    if kernel:
        mount_over("/proc/sys/kernel/osrelease", kernel + "\n")
    version, is_open = module_version(kernel)
    gpus = [device for device in devices if device["class"].startswith(GPU)]
    loaded: dict[str, str] = {}
    driver = ""
    if gpus and settings["nouveau"] and not nouveau_kept_out(kernel):
        driver, loaded = "nouveau", {"nouveau": ""}
    elif gpus and version and not Path("/etc/standin-gpu-broken").exists():
        driver, loaded = "nvidia", {"nvidia": version, "nvidia_uvm": version}
    show_bus(devices, driver)
    show_config(devices)
    show_modules(loaded)
    if driver == "nvidia":
        show_driver(devices, version, is_open)
    (SHADOW / "booted").write_text(kernel)
    print(f"simulated GPUs: kernel {kernel or 'of this machine'}, {len(gpus)} GPUs, driver {driver} {version}".rstrip())


if __name__ == "__main__":
    main()
