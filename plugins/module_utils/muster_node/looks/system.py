"""Operating system, kernel, virtualization and Secure Boot of the machine."""

from __future__ import annotations

import os
import platform
import pwd
import re
import sys
from pathlib import Path
from typing import Any

from ..tools import files
from ..tools.run import CommandResult, read, run

EFI = "/sys/firmware/efi"
# The certificate of dkms' signing key on Ubuntu and on Debian.
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
# The variable's name is the same on every machine: its second half is UEFI's vendor id.
VARIABLE = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# The CPU flag of virtual machines (x86), and systemd's name for an unknown hypervisor.
SHOWN = re.compile(r"^flags\s*:.* hypervisor\b", re.MULTILINE)
UNNAMED = "vm-other"
# In a container, which shows the host's CPU flags, PID 2 is not a kernel thread. (Files such as /.dockerenv are no
# proof: virtual machines can be created from container images.)
SECOND = "/proc/2/comm"
OF_THE_KERNEL = "kthreadd"


def look() -> dict[str, Any]:
    virt = virtualization()
    try:
        myself = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        myself = str(os.geteuid())
    return {
        "os_release": read("/etc/os-release").text,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": list(sys.version_info[:3]),
        "python_path": sys.executable,
        "init": read("/proc/1/comm").text.strip(),
        "virt": virt.text,
        "virt_why": virt.why,
        "machine_id": read("/etc/machine-id").text.strip(),
        "boot_id": read("/proc/sys/kernel/random/boot_id").text.strip(),
        "host_key": read("/etc/ssh/ssh_host_ed25519_key.pub").text.strip(),
        "looked_as": myself,
        "root": os.geteuid() == 0,
    }


def boot() -> dict[str, Any]:
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


def virtualization() -> CommandResult:
    """Return the type of virtualization: "none" on bare metal, "" if unknown."""
    # Exits with 1 and prints "none" on bare metal.
    said = run("systemd-detect-virt")
    if word := said.text.strip():
        return CommandResult(word)
    if read(SECOND).text.strip() == OF_THE_KERNEL and SHOWN.search(read("/proc/cpuinfo").text):
        return CommandResult(UNNAMED)
    return CommandResult("", said.why)
