"""Free space in the folders that Muster writes to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def look(paths: list[str]) -> dict[str, Any]:
    return {path: room(path) for path in paths}


def room(path: str) -> dict[str, Any]:
    """Return the free space of the path's file system, measured at the nearest existing parent folder."""
    there = next(folder for folder in (Path(path), *Path(path).parents, Path("/")) if folder.is_dir())
    try:
        seen = os.statvfs(there)
    except OSError as error:
        return {"why": f"{there}: {error.strerror}"}
    return {
        "exists": os.path.lexists(path),
        "on": str(there),
        "free": seen.f_bavail * seen.f_frsize,
        # Some file systems have no inode limit.
        "inodes_free": seen.f_favail if seen.f_files else None,
        "read_only": bool(seen.f_flag & os.ST_RDONLY),
    }
