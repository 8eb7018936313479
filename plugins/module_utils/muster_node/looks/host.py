"""Machine-wide settings that affect launches: systemd-logind, clock source, kernel modules, configuration files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..tools.run import names, read, run

ENVIRONMENT, NCCL_CONF, PRELOAD = "/etc/environment", "/etc/nccl.conf", "/etc/ld.so.preload"
SYSTEMD = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
CLOCK = "/sys/devices/system/clocksource/clocksource0"


def look() -> dict[str, Any]:
    login = run("loginctl", "show-user", "--property=RemoveIPC") if Path("/run/systemd/system").is_dir() else None
    return {
        "login": login.text if login else "",
        "login_why": login.why if login else "systemd is not running",
        "login_files": login_files(),
        "login_defs": read("/etc/login.defs").text,
        "clock_source": read(f"{CLOCK}/current_clocksource").text.strip(),
        "clock_sources": read(f"{CLOCK}/available_clocksource").text.strip(),
        "modules": read("/proc/modules").text,
        "environment": read(ENVIRONMENT).text,
        "interfaces": names("/sys/class/net"),
        "nccl_conf": nccl_conf(),
        "preload": read(PRELOAD).text,
        "unread": [path for path in (ENVIRONMENT, NCCL_CONF, PRELOAD) if read(path).why and os.path.lexists(path)],
        "conntrack": [read(f"/proc/sys/net/netfilter/nf_conntrack_{name}").text.strip() for name in ("count", "max")],
    }


def nccl_conf() -> str | None:
    return read(NCCL_CONF).text if Path(NCCL_CONF).exists() else None


def login_files() -> dict[str, str]:
    """Return {path: text} of the configuration files that systemd-logind reads at its start."""
    paths = [
        path
        for place in SYSTEMD
        for path in (Path(place, "logind.conf"), *sorted(Path(place, "logind.conf.d").glob("*.conf")))
    ]
    return {str(path): read(str(path)).text for path in paths if path.exists()}
