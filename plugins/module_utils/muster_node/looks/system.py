"""What this machine is: its system, its kernel, its virtualization, and whether firmware enforces signed modules."""

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
# Where dkms keeps the certificate of its key: Ubuntu's, and Debian's.
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
# The variable's name is the same on every machine: its second half is the UEFI's own vendor id.
VARIABLE = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# A processor that a hypervisor shows says so among its flags (x86). systemd's own word for a machine without a name.
SHOWN = re.compile(r"^flags\s*:.* hypervisor\b", re.MULTILINE)
UNNAMED = "vm-other"
# In a container, whose processor is its host's, the second process is not the kernel's own. (Files such as /.dockerenv
# do not tell: virtual machines are made from images of containers, too.)
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
        # It ends with 1 for a key that is enrolled.
        "keys": {path: test.text or test.why for path, test in tests.items()},
    }


def virtualization() -> CommandResult:
    """One word: "none" on a machine of its own, and nothing where it is not known."""
    # It ends with 1 on a machine that is none of the known virtual ones, and says "none".
    said = run("systemd-detect-virt")
    if word := said.text.strip():
        return CommandResult(word)
    if read(SECOND).text.strip() == OF_THE_KERNEL and SHOWN.search(read("/proc/cpuinfo").text):
        return CommandResult(UNNAMED)
    return CommandResult("", said.why)
