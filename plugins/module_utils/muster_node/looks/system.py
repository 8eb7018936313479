"""What this machine is: its system, its kernel, and whether it is one of its own."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from typing import Any

from ..tools.run import read
from . import virtual


def look() -> dict[str, Any]:
    virt = virtual.look()
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
