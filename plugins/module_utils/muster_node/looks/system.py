"""Operating system, kernel, virtualization and Secure Boot of the machine."""

from __future__ import annotations

import os
import platform
import pwd
import re
import sys
from typing import Any

from ..tools.run import CommandResult, read, run

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


def virtualization() -> CommandResult:
    """Return the type of virtualization: "none" on bare metal, "" if unknown."""
    # Exits with 1 and prints "none" on bare metal.
    said = run("systemd-detect-virt")
    if word := said.text.strip():
        return CommandResult(word)
    if read(SECOND).text.strip() == OF_THE_KERNEL and SHOWN.search(read("/proc/cpuinfo").text):
        return CommandResult(UNNAMED)
    return CommandResult("", said.why)
