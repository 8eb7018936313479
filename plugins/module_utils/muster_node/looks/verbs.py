"""The user space of RDMA, which NCCL opens when it starts: libibverbs, and what it has for each adapter's driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..tools.run import names, run
from .rdma import DEVICES

LIBRARY = re.compile(r"^\s*libibverbs\.so\.1 \(.*\) => (\S+)$", re.MULTILINE)


def look() -> dict[str, Any]:
    adapters = names(DEVICES)
    # Without an adapter nobody asks.
    cache = run("ldconfig", "-p") if adapters else None
    listed = LIBRARY.search(cache.text) if cache else None
    library = listed[1] if listed else ""
    folder = str(Path(library).parent / "libibverbs") if library else ""
    return {
        "why": cache.why if cache else "",
        "library": library,
        # Its own name, behind the link, has rdma-core's release.
        "file": Path(library).resolve().name if library else "",
        "folder": folder,
        "providers": names(folder) if folder else [],
        "drivers": {name: driver(name) for name in adapters},
    }


def driver(adapter: str) -> str:
    """Return the kernel's driver of the device below an adapter; one that is software alone has no device."""
    try:
        return Path(f"{DEVICES}/{adapter}/device/driver").readlink().name
    except OSError:
        return ""
