"""Reports free space on the file system of a path."""

from __future__ import annotations

import os
from typing import Any


def disk_facts(path: str) -> dict[str, Any]:
    """Return the free space for a folder that might not exist yet, measured at the nearest existing parent."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    usage = os.statvfs(path)
    return {
        "path": path,
        "free": usage.f_bavail * usage.f_frsize,
        "total": usage.f_blocks * usage.f_frsize,
        "inodes_free": usage.f_favail if usage.f_files else None,
        "read_only": bool(usage.f_flag & os.ST_RDONLY),
    }
