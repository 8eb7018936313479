"""Determine the file system of a folder in a separate process, because access to an unavailable file server blocks
forever."""

from __future__ import annotations

import os
import re
from typing import Any

from ..tools import files
from ..tools.as_user import SilentError, as_user

Json = dict[str, Any]

SECONDS = 5.0
MOUNTS = "/proc/self/mounts"
OCTAL = re.compile(r"\\([0-7]{3})")


def real_path(path: str) -> str:
    """Return the path with links resolved; the unchanged path if resolving fails."""
    try:
        return str(as_user(None, lambda: os.path.realpath(path), seconds=SECONDS))
    except SilentError:
        return path


def cache_facts(path: str) -> Json:
    """Return {path, type}. type: file system type of the folder, which might not exist yet."""
    return {"path": path, "type": type_of(real_path(path), files.text(MOUNTS) or "")}


def type_of(path: str, mounts: str) -> str:
    """Return the type of the innermost mount of a path without links; "" for none. If several file systems are mounted
    on one folder, the last mount counts, because it hides the others."""
    found, longest = "", -1
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = OCTAL.sub(lambda octal: chr(int(octal[1], 8)), words[1])
        if is_within(path, point) and len(point) >= longest:
            found, longest = words[2], len(point)
    return found


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
