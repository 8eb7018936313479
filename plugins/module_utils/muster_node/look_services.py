"""Which of the services run that a cluster has to do with: clocks, firewalls, container engines, upgrades."""

from __future__ import annotations

from typing import Any

from .look_run import read, run

UNITS = (
    *("chrony.service", "systemd-timesyncd.service", "ntpsec.service", "ntp.service", "openntpd.service"),
    *("ufw.service", "firewalld.service", "nftables.service", "docker.service", "containerd.service"),
    *("unattended-upgrades.service", "nvidia-fabricmanager.service", "nvidia-persistenced.service"),
)


def look(root: bool) -> dict[str, Any]:
    # One line for each unit, in this order; it ends with 3 when one of them does not run.
    active = run("systemctl", "is-active", *UNITS)
    states = active.text.split("\n")[: len(UNITS)]
    nft = run("nft", "list", "chains") if root else None
    clock = run("timedatectl", "show")
    return {
        "active": dict(zip(UNITS, states, strict=False)),
        "ufw_conf": read("/etc/ufw/ufw.conf").text,
        "nft": nft.text if nft else "",
        "nft_why": nft.why if nft else "only root may list the rules",
        # Tables of the older iptables, which nft does not show.
        "legacy_tables": read("/proc/net/ip_tables_names").text.split(),
        "clock": clock.text,
        "clock_why": clock.why,
    }
