"""Running services that affect a cluster: time services, firewalls, container engines, upgrades."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import read, run

UNITS = (
    *("chrony.service", "systemd-timesyncd.service", "ntpsec.service", "ntp.service", "openntpd.service"),
    *("ufw.service", "firewalld.service", "nftables.service", "docker.service", "containerd.service"),
    *("unattended-upgrades.service", "nvidia-fabricmanager.service", "nvidia-persistenced.service"),
)


def look(root: bool) -> dict[str, Any]:
    # One line per unit, in this order; exits with 3 if a unit is not active.
    active = run("systemctl", "is-active", *UNITS)
    states = active.text.split("\n")[: len(UNITS)]
    # Without the module no rules exist, and listing them would load it.
    asked = root and (Path("/sys/module/nf_tables").is_dir() or not read("/proc/modules").text)
    nft = run("nft", "list", "chains") if asked else None
    return {
        "active": dict(zip(UNITS, states, strict=False)),
        "ufw_conf": read("/etc/ufw/ufw.conf").text,
        "nft": nft.text if nft else "",
        "nft_why": nft.why if nft else "" if root else "only root can list the rules",
        # Tables of legacy iptables, which nft does not show.
        "legacy_tables": read("/proc/net/ip_tables_names").text.split(),
    }
