"""RDMA user-space libraries that NCCL loads at its start: libibverbs, and its providers for the drivers of the
adapters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..tools.run import names, run
from .rdma import DEVICES

LIBRARY = re.compile(r"^\s*libibverbs\.so\.1 \(.*\) => (\S+)$", re.MULTILINE)


def look() -> dict[str, Any]:
    adapters = names(DEVICES)
    # Without an adapter the library does not matter.
    cache = run("ldconfig", "-p") if adapters else None
    listed = LIBRARY.search(cache.text) if cache else None
    library = listed[1] if listed else ""
    folder = str(Path(library).parent / "libibverbs") if library else ""
    return {
        "why": cache.why if cache else "",
        "library": library,
        # The file name behind the link has rdma-core's release.
        "file": Path(library).resolve().name if library else "",
        "folder": folder,
        "providers": names(folder) if folder else [],
        "drivers": {name: driver(name) for name in adapters},
    }


def driver(adapter: str) -> str:
    """Return the kernel driver of an adapter; "" for software adapters, which have no device."""
    try:
        return Path(f"{DEVICES}/{adapter}/device/driver").readlink().name
    except OSError:
        return ""
