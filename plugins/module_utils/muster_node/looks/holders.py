"""Who has a file of NVIDIA's driver open, and what is known of a process."""

from __future__ import annotations

import os
from typing import Any

from ..tools import process


def look() -> dict[str, Any]:
    """Look at every process. Of others' processes, root alone may see what they have open."""
    holders = []
    for pid in process.ids():
        devices = sorted(path for path in process.opened(pid) if path.startswith("/dev/nvidia"))
        if devices:
            holders.append({**known(pid), "devices": devices})
    return {"holders": holders, "saw_all_holders": os.geteuid() == 0}


def known(pid: int) -> dict[str, Any]:
    """Return what everybody may see of a process; nothing of one that is gone."""
    seen = process.status(pid)
    return {
        "pid": pid,
        "name": process.read(pid, "comm").strip(),
        "owner": process.owner(pid),
        "started": seen.started / process.TICKS if seen else None,
        "cgroup": process.read(pid, "cgroup"),
    }
