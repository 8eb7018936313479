"""List the NAT rules that container engines use to publish ports, which bypass the firewall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import read, run


def look(root: bool) -> dict[str, Any]:
    """Return the NAT rules if the kernel modules are loaded. Otherwise, listing the rules would load the modules.

    In a kernel without loadable modules, the modules are built in.
    """
    there = Path("/sys/module/nf_tables").is_dir() or bool(read("/proc/net/ip_tables_names").text)
    loaded = there or not read("/proc/modules").text
    if not root:
        return {"why": "only root can list the rules", "rules": {}}
    answers = {4: run("iptables-save", "-t", "nat"), 6: run("ip6tables-save", "-t", "nat")} if loaded else {}
    return {
        "why": answers[4].why if answers else "",
        "rules": {version: answer.text for version, answer in answers.items()},
    }
