"""Read the control group of a launch: usage, limits, and events such as OOM kills and denied forks.

With cgroup v2, all data is in one folder. With v1, or with v1 and v2, each controller has a separate tree. A missing
number means that there is no limit or that the value is not visible.
"""

from __future__ import annotations

import os
from typing import Any

from . import process
from .kernel_files import pairs, whole, word

Json = dict[str, Any]

CGROUPS = "/sys/fs/cgroup"
V2, BESIDE = "", "unified"  # the only tree, or next to the trees of v1
WANTED = ("memory", "cpu", "cpuacct", "pids", "freezer")
NO_LIMIT = 1 << 60  # v1 reports nearly 2^63, rounded to pages, instead of "max"
EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
# By name: the controller, its file in v1 and in v2, and the counter.
OF_MACHINE = {
    "oom_kill": ("memory", "memory.oom_control", "memory.events", "oom_kill"),
    "pids_refused": ("pids", "pids.events", "pids.events", "max"),
    "nr_periods": ("cpu", "cpu.stat", "cpu.stat", "nr_periods"),
    "nr_throttled": ("cpu", "cpu.stat", "cpu.stat", "nr_throttled"),
}
PERIODS = ("nr_periods", "nr_throttled", "throttled_usec", "usage_usec")


def unit_facts(pid: int) -> Json:
    """Return data on a process's unit; see Unit in evidence.py. Raises LookupError if the unit is not visible."""
    trees = folders(process.read(pid, "cgroup"), process.read(1, "cgroup"))
    if not trees:
        raise LookupError("the control group is not visible")
    return facts_v2(trees[V2]) if V2 in trees else facts_v1(trees)


def folders(text: str, first: str = "") -> dict[str, str]:
    """Return {controller: the unit's folder in the controller's tree}. The key of the v2 tree is V2, or BESIDE if v1
    has the controllers.

    Controllers that systemd does not delegate to units are missing. first: control groups of PID 1. In a container, all
    paths can begin with the container's path, which does not exist in the container's own trees.
    """
    found: dict[str, str] = {}
    above = groups(first)
    for controller, path in groups(text).items():
        if not path.endswith((".service", ".scope")):
            continue  # this group also counts other processes
        inner = path.removeprefix(above.get(controller, "").removesuffix("/init.scope"))
        for place in (V2, BESIDE) if controller == V2 else (controller,):
            tree = f"{CGROUPS}/{place}".rstrip("/")
            there = (tree + each for each in (path, inner) if os.path.exists(f"{tree}{each}/cgroup.procs"))
            if folder := next(there, ""):
                found[place] = folder
                break
    return found


def groups(text: str) -> dict[str, str]:
    """Return {controller: path} from /proc/PID/cgroup."""
    found = {}
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        for controller in controllers.split(","):
            if controller in (V2, *WANTED):
                found[controller] = path
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
        "pids_refused": pairs(f"{folder}/pids.events").get("max"),
        "frozen": bool(events["frozen"]) if "frozen" in events else None,
    }


def facts_v1(trees: dict[str, str]) -> Json:
    memory, cpu, pids = (trees.get(name, "") for name in ("memory", "cpu", "pids"))
    most = whole(f"{memory}/memory.limit_in_bytes") if memory else None
    beside = facts_v2(trees[BESIDE]) if BESIDE in trees else {"cpu": {}, "frozen": None}
    used = whole(f"{trees['cpuacct']}/cpuacct.usage") if "cpuacct" in trees else None
    throttled = pairs(f"{cpu}/cpu.stat") if cpu else {}
    state = word(f"{trees['freezer']}/freezer.state") if "freezer" in trees else ""
    found = {**beside["cpu"], **only(throttled, PERIODS)}
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
        "pids_refused": pairs(f"{pids}/pids.events").get("max") if pids else None,
        "frozen": beside["frozen"] or state in ("FROZEN", "FREEZING") if state else beside["frozen"],
    }


def of_machine() -> dict[str, int]:
    """Return {oom_kill, pids_refused, nr_periods, nr_throttled} of the machine's own control group, if available. Only
    a container that serves as a machine has a control group with limits."""
    above = groups(process.read(1, "cgroup"))
    found = {}
    for name, (controller, v1, v2, counted) in OF_MACHINE.items():
        tree, file = (f"{CGROUPS}/{controller}", v1) if controller in above else (CGROUPS, v2)
        outer = above.get(controller, above.get(V2, "")).removesuffix("/init.scope").rstrip("/")
        numbers = next((numbers for each in (outer, "") if (numbers := pairs(f"{tree}{each}/{file}"))), {})
        if counted in numbers:
            found[name] = numbers[counted]
    return found


def cores(quota: str, period: str) -> float | None:
    """Return the CPU limit in cores; None if there is no limit ("max" in v2, -1 in v1)."""
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def only(numbers: dict[str, int], names: tuple[str, ...]) -> dict[str, int]:
    return {name: numbers[name] for name in names if name in numbers}
