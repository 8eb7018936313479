"""The kernels of a node: which can be booted, which the boot menu selects, and the files that the next boot needs.

The kernel version and modules are read from files, not with uname.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from . import files
from .run import names, read, run

# Debian's package renames the module's file and adds an alias for modprobe.
MODULES = ("nvidia", "nvidia-current", "nvidia-current-open")
MENU, VARIABLES = "/boot/grub/grub.cfg", "/boot/grub/grubenv"
MODPROBE = "/etc/modprobe.d/muster-nvidia.conf"
KEPT = re.compile(r"\s*(submenu|menuentry|linux(efi|16)?|set default=\S*)(\s|$)")
EFI = "/sys/firmware/efi"
# The certificate of dkms' signing key on Ubuntu and on Debian.
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
# The variable's name is the same on every machine: its second half is UEFI's vendor id.
VARIABLE = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# A node has two or three kernels; one that never removes old kernels has dozens.
MOST_KERNELS = 64
MOST_LINES = 600
MOST_OF_A_LINE = 400


def look() -> dict[str, Any]:
    """Return the kernels and the state of the firmware. firmware: None without a kernel to boot, as in a container."""
    found = kernels()
    return {**found, "firmware": firmware() if found["bootable"] else None}


def kernels() -> dict[str, Any]:
    images = [name.removeprefix("vmlinuz-") for name in names("/boot") if name.startswith("vmlinuz-")]
    # A backup copy, such as vmlinuz-6.8.0-90-generic.bak, has no modules.
    bootable = [name for name in images if Path("/lib/modules", name).is_dir()][-MOST_KERNELS:]
    running = read("/proc/sys/kernel/osrelease").text.strip()
    return {
        "loaded": read("/sys/module/nvidia/version").text.strip(),
        "loaded_text": read("/proc/driver/nvidia/version").text,
        "running": running,
        "kernels": {kernel: _kernel(kernel) for kernel in dict.fromkeys((*bootable, *filter(None, [running])))},
        "bootable": bootable,
        "menu": menu() if bootable else {"text": "", "why": ""},
        "menu_variables": read(VARIABLES).text,
        "modprobe": _time(Path(MODPROBE), "st_mtime"),
        "uptime": read("/proc/uptime").text,
        "now": time.time(),
    }


def firmware() -> dict[str, Any]:
    """Return the state of Secure Boot, and whether the firmware trusts the signing keys of dkms."""
    try:
        variable = list(files.read(VARIABLE))
    except OSError:
        variable = []
    efi = Path(EFI).is_dir()
    mokutil = run("mokutil", "--sb-state").text if efi and not variable else ""
    there = [path for path in CERTIFICATES if efi and Path(path).exists()]
    tests = {path: run("mokutil", "--test-key", path) for path in there}
    return {
        "efi": efi,
        "variable": variable,
        "mokutil": mokutil,
        # Exits with 1 for an enrolled key.
        "keys": {path: test.text or test.why for path, test in tests.items()},
    }


def menu() -> dict[str, str]:
    """Return the lines of the boot menu that name entries, kernels and the default. why: why the menu is unknown."""
    said = read(MENU)
    lines = [line[:MOST_OF_A_LINE] for line in said.text.splitlines() if KEPT.match(line)]
    cut = f"{MENU} has more than {MOST_LINES} entries and kernels" if len(lines) > MOST_LINES else ""
    return {"text": "".join(f"{line}\n" for line in lines[:MOST_LINES]), "why": said.why or cut}


def _kernel(kernel: str) -> dict[str, Any]:
    """Return the NVIDIA module that this kernel would load, and whether headers to build a module are installed."""
    module = run("modinfo", "-k", kernel, *MODULES)
    return {
        # Exits with 1 if a module does not exist, but prints the others.
        "modinfo": module.text,
        "modinfo_why": module.why if module.code is None else "",
        "headers": Path(f"/lib/modules/{kernel}/build").is_dir(),
        "initramfs": _time(Path(f"/boot/initrd.img-{kernel}"), "st_mtime"),
        # dpkg sets mtime to the build time of the package: ctime is the time of the installation.
        "installed": _time(Path(f"/boot/vmlinuz-{kernel}"), "st_ctime"),
    }


def _time(path: Path, which: str) -> float | None:
    """Return a time of a file; None without a file, or if it is empty, as after a full file system."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return float(getattr(seen, which)) if seen.st_size else None
