"""What holds for the whole machine and a launch depends on: its manager of logins, clock source, modules, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import read, run

CLOCK = "/sys/devices/system/clocksource/clocksource0"


def look() -> dict[str, Any]:
    login = run("loginctl", "show-user", "--property=RemoveIPC") if Path("/run/systemd/system").is_dir() else None
    return {
        "login": login.text if login else "",
        "login_why": login.why if login else "systemd does not run here",
        "login_defs": read("/etc/login.defs").text,
        "clock_source": read(f"{CLOCK}/current_clocksource").text.strip(),
        "clock_sources": read(f"{CLOCK}/available_clocksource").text.strip(),
        "modules": read("/proc/modules").text,
        "environment": read("/etc/environment").text,
        "nccl_conf": nccl_conf(),
        "preload": read("/etc/ld.so.preload").text,
        "conntrack": [read(f"/proc/sys/net/netfilter/nf_conntrack_{name}").text.strip() for name in ("count", "max")],
    }


def nccl_conf() -> str | None:
    path = "/etc/nccl.conf"
    return read(path).text if Path(path).exists() else None
