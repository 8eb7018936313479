"""Who has a file of NVIDIA's driver open."""

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
            holders.append({**process.known(pid), "devices": devices})
    return {"holders": holders, "saw_all_holders": os.geteuid() == 0}
