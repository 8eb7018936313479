"""Who uses a GPU: processes as the kernel shows them, without those that are there to keep the GPUs ready."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# They keep the GPUs ready or watch them, and a reboot takes nothing from anybody: by unit, else by name.
DAEMONS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nv-fabricmanager", "nv-hostengine"),
    *("dcgm-exporter", "nvidia-smi", "nvtop"),
)
COMM_LENGTH = 15
# Primus takes more than this on a GPU that nobody uses for memory that a dead process left.
HELD_MIB = 1024


def holders(seen: Iterable[Mapping[str, Any]], uptime: float) -> list[dict[str, Any]]:
    """Return the processes that have a file of the driver open: [{pid, name, owner, devices, unit, age}]."""
    found = []
    for each in seen:
        described = {**describe(each, uptime), "devices": each["devices"]}
        if not keeps_ready(described):
            found.append(described)
    return found


def describe(each: Mapping[str, Any], uptime: float) -> dict[str, Any]:
    """Return who a process is. age: seconds since its start, None for one that is gone."""
    # The last part of a cgroup's path that is a unit; libpod and docker put a scope there.
    units = re.findall(r"/([^/\n]+\.(?:service|scope))", each["cgroup"])
    age = None if each["started"] is None else max(0, int(uptime - each["started"]))
    return {
        **{key: each[key] for key in ("pid", "name", "owner")},
        "unit": units[-1] if units else "",
        "age": age,
    }


def keeps_ready(process: Mapping[str, Any]) -> bool:
    unit = process["unit"].removesuffix(".service")
    return unit in DAEMONS or process["name"] in {name[:COMM_LENGTH] for name in DAEMONS}
