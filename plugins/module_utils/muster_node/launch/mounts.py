"""Which file system a folder is on: looked at in a process of its own, since one of a dead server answers nobody."""

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
    """Return the path that no link leads to; as it is where that cannot be found out."""
    try:
        return str(as_user(None, lambda: os.path.realpath(path), seconds=SECONDS))
    except SilentError:
        return path


def cache_facts(path: str) -> Json:
    """Return {path, type}: of the file system that the folder is on, or will be."""
    return {"path": path, "type": type_of(real_path(path), files.text(MOUNTS) or "")}


def type_of(path: str, mounts: str) -> str:
    """Return the type of the innermost mount that a path without links is in; "" for none. Of several mounts in one
    place the last one counts, which covers the others."""
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
