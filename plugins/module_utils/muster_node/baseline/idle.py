"""Wait for cloud-init and for package tools that are running on the node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

from ..tools.result import RefusedError
from .look import DPKG, look_at_units

LOCKS = (DPKG / "lock-frontend", DPKG / "lock", Path("/var/lib/apt/lists/lock"))
# Unit names before and since cloud-init 24.3. Missing units are not-found and never active.
CLOUD_INIT = ("cloud-init-local", "cloud-init-main", "cloud-init-network", "cloud-init", "cloud-config", "cloud-final")


def wait_until_idle(seconds: float, *, packages: bool) -> None:
    begun = time.monotonic()
    while at_work := cloud_init_at_work() or (package_tools_at_work() if packages else ""):
        waited = time.monotonic() - begun
        if waited >= seconds:
            raise RefusedError(f"{at_work} is still running after {waited:.0f} s", "Wait until it ends, then try again")
        time.sleep(min(2.0, seconds - waited))


def cloud_init_at_work() -> str:
    if not Path("/run/cloud-init").exists():
        return ""
    units = look_at_units(f"{name}.service" for name in CLOUD_INIT)
    busy = [
        name for name, state in units.items() if state["ActiveState"] == "activating" or state.get("Job", "0") > "0"
    ]
    return f"cloud-init ({', '.join(busy)}; see: cloud-init status --long)" if busy else ""


def package_tools_at_work() -> str:
    """Return the process that holds a lock of apt or dpkg. Locks are read from the kernel, so stale lock files are
    ignored."""
    for lock in LOCKS:
        with contextlib.suppress(OSError), lock.open("rb") as stream:
            # struct flock: type, whence, start, length, pid.
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(stream, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                name = "a process"
                with contextlib.suppress(OSError):
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                return f"{name} (pid {pid}), which holds {lock}"
    return ""
