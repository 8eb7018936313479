"""The control group of a launch: what it uses, what it may use, and what the kernel refused it, or ended in it.

With cgroup v2 one folder has all of it; with v1, or both, each controller has a tree of its own. Whose number is not
there is not limited, or not seen by anybody.
"""

from __future__ import annotations

import os
from typing import Any

from . import process
from .kernel_files import pairs, whole, word

Json = dict[str, Any]

CGROUPS = "/sys/fs/cgroup"
WANTED = ("memory", "cpu", "cpuacct", "pids", "freezer")
NO_LIMIT = 1 << 60  # what v1 says in the place of "max" is nearly 2^63, rounded to pages
EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
PERIODS = ("nr_periods", "nr_throttled", "throttled_usec", "usage_usec")


def unit_facts(pid: int) -> Json:
    """Those of the group that a process is in; see Unit in evidence.py. Raises LookupError where none is to be seen."""
    trees = folders(process.read(pid, "cgroup"))
    if not trees:
        raise LookupError("its control group is not to be seen here")
    return facts_v1(trees) if "" not in trees else facts_v2(trees[""])


def folders(text: str) -> dict[str, str]:
    """{controller: the folder of the group} of those with a tree of their own; {"": folder} where one has all."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers and os.path.exists(f"{CGROUPS}{path}/cgroup.controllers"):
            return {"": CGROUPS + path}
        for controller in set(controllers.split(",")) & set(WANTED):
            folder = f"{CGROUPS}/{controller}{path}"
            if os.path.isdir(folder):
                found[controller] = folder
    return found


def facts_v2(folder: str) -> Json:
    events = pairs(f"{folder}/cgroup.events")
    return {
        "memory_current": whole(f"{folder}/memory.current"),
        "memory_max": whole(f"{folder}/memory.max"),
        "memory_events": only(pairs(f"{folder}/memory.events"), EVENTS),
        "cpu_max": cores(*[*word(f"{folder}/cpu.max").split(), "", ""][:2]),
        "cpu": only(pairs(f"{folder}/cpu.stat"), PERIODS),
        "pids_current": whole(f"{folder}/pids.current"),
        "pids_max": whole(f"{folder}/pids.max"),
        "pids_refused": pairs(f"{folder}/pids.events").get("max", 0),
        "frozen": bool(events["frozen"]) if "frozen" in events else None,
    }


def facts_v1(trees: dict[str, str]) -> Json:
    memory, cpu, pids = (trees.get(name, "") for name in ("memory", "cpu", "pids"))
    most = whole(f"{memory}/memory.limit_in_bytes") if memory else None
    used = whole(f"{trees['cpuacct']}/cpuacct.usage") if "cpuacct" in trees else None
    throttled = pairs(f"{cpu}/cpu.stat") if cpu else {}
    state = word(f"{trees['freezer']}/freezer.state") if "freezer" in trees else ""
    found = only(throttled, PERIODS)
    if "throttled_time" in throttled:
        found["throttled_usec"] = throttled["throttled_time"] // 1000
    return {
        "memory_current": whole(f"{memory}/memory.usage_in_bytes") if memory else None,
        "memory_max": most if most is not None and most < NO_LIMIT else None,
        "memory_events": only(pairs(f"{memory}/memory.oom_control"), EVENTS) if memory else {},
        "cpu_max": cores(word(f"{cpu}/cpu.cfs_quota_us"), word(f"{cpu}/cpu.cfs_period_us")) if cpu else None,
        "cpu": {**found, **({"usage_usec": used // 1000} if used is not None else {})},
        "pids_current": whole(f"{pids}/pids.current") if pids else None,
        "pids_max": whole(f"{pids}/pids.max") if pids else None,
        "pids_refused": pairs(f"{pids}/pids.events").get("max", 0) if pids else 0,
        "frozen": state in ("FROZEN", "FREEZING") if state else None,
    }


def cores(quota: str, period: str) -> float | None:
    """None without a limit: "max" in v2, -1 in v1."""
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def only(numbers: dict[str, int], names: tuple[str, ...]) -> dict[str, int]:
    return {name: numbers[name] for name in names if name in numbers}
