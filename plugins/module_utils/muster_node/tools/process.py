"""Processes of this node: owner, start time and state, and the processes of launches."""

from __future__ import annotations

import os
import re
import time
from typing import Any, NamedTuple

from . import files

# The environment variable of all processes of a launch, and the launch's unit.
LAUNCH_MARK = "MUSTER_LAUNCH_ID"
LAUNCH_UNIT = "muster-launch-{}.service"
LAUNCH_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}\Z")
A_LAUNCH_UNIT = re.compile(re.escape(LAUNCH_UNIT).replace(r"\{\}", rf"({LAUNCH_ID.pattern[:-2]})"))
A_MANAGER = re.compile(r"user@(\d+)\.service")
SYSTEMD_PATH = re.compile(r"^(0:|\d+:name=systemd):(/.*)$", re.MULTILINE)
GONE = ("Z", "X")
TICKS = os.sysconf("SC_CLK_TCK")
MOST_COMMAND = 200  # characters of a quoted command line


class ProcessStatus(NamedTuple):
    """state: the kernel's letter. cpu: seconds. started: ticks since boot; PID and start identify one process."""

    state: str
    parent: int
    cpu: float
    started: int


class LaunchUnit(NamedTuple):
    """A launch by its unit. uid: the user whose manager runs it, or None for the system's manager, which requires root.

    Users choose the names of units in their own manager, so the id alone does not identify the launch's user.
    """

    id: str
    uid: int | None = None


def ids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def status(pid: int) -> ProcessStatus | None:
    """Return the status, or None for a process that is gone."""
    # The name is in parentheses and may contain any character.
    words = read(pid, "stat").rpartition(")")[2].split()
    if len(words) < 20:
        return None
    return ProcessStatus(words[0], int(words[1]), (int(words[11]) + int(words[12])) / TICKS, int(words[19]))


def runs(pid: int, started: int | None = None) -> bool:
    """Return whether a process is running and has this start time."""
    seen = status(pid)
    return seen is not None and seen.state not in GONE and started in {None, seen.started}


def read(pid: int, name: str) -> str:
    """Return the text of a process's file in /proc, or "" if the process is gone or not accessible."""
    return files.text(f"/proc/{pid}/{name}") or ""


def shown(pid: int) -> str:
    """Return the name and PID of a process for people. The name is quoted, because its user chooses it."""
    letters = read(pid, "comm").removesuffix("\n")
    name = "".join(letter if letter.isprintable() and letter != '"' else "?" for letter in letters).strip()
    return f'"{name}" ({pid})' if name else f"a process ({pid})"


def owner(pid: int) -> str:
    try:
        return files.user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""


def words(pid: int) -> list[str]:
    """Return the command line of a process."""
    return [word for word in read(pid, "cmdline").split("\0") if word]


def executable(pid: int) -> str:
    """Return the path of a process's program. Other users' processes require root."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def unit(pid: int) -> str:
    """Return the innermost unit of a process."""
    leaves = (line.rpartition("/")[2] for line in reversed(read(pid, "cgroup").splitlines()))
    return next((leaf for leaf in leaves if leaf.endswith((".service", ".scope"))), "")


def outermost_unit(pid: int) -> str:
    """Return the system unit of a process. Users choose the names of units within it, for example in their own
    manager."""
    return next(iter(_units(pid)), "")


def _units(pid: int) -> list[str]:
    """Return the units of a process, the outermost first.

    systemd uses its own tree of cgroup v1, or the tree of v2. The kernel lists both, including the one that systemd
    does not use, which contains no units.
    """
    first = _cgroups(1)
    for tree, path in _cgroups(pid).items():
        # If PID 1 is in a unit of an outer host, all paths begin with that unit.
        beyond = first.get(tree, "").removesuffix("/init.scope")
        parts = path.removeprefix(beyond).split("/")
        if units := [part for part in parts if part.endswith((".service", ".scope"))]:
            return units
    return []


def _cgroups(pid: int) -> dict[str, str]:
    return dict(SYSTEMD_PATH.findall(read(pid, "cgroup")))


def launch_at(pid: int) -> LaunchUnit | None:
    """Return the launch of a process by its unit, in the system's manager or a user's manager."""
    outer, inner = [*_units(pid), "", ""][:2]
    if found := A_LAUNCH_UNIT.fullmatch(outer):
        return LaunchUnit(found[1])
    manager, found = A_MANAGER.fullmatch(outer), A_LAUNCH_UNIT.fullmatch(inner)
    return LaunchUnit(found[1], int(manager[1])) if manager and found else None


def in_launches() -> dict[tuple[int | None, str], list[int]]:
    """Return the processes in units of launches, by (uid of a user's manager or None, id), sorted by start time. The
    kernel shows the unit of a process to every user."""
    found: dict[tuple[int | None, str], list[int]] = {}
    for pid in ids():
        launch = launch_at(pid)
        if launch:
            found.setdefault((launch.uid, launch.id), []).append(pid)
    return {one: sorted(pids, key=_started) for one, pids in found.items()}


def _started(pid: int) -> int:
    seen = status(pid)
    return seen.started if seen else 0


def age(pid: int) -> float | None:
    """Return the seconds since the start of a process, including suspend, or None for a process that is gone."""
    seen = status(pid)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - seen.started / TICKS) if seen else None


def user_id(pid: int) -> int | None:
    """Return the real uid of a process, even if it hides itself, or None for a process that is gone."""
    found = re.search(r"^Uid:\t(\d+)", read(pid, "status"), re.MULTILINE)
    return int(found[1]) if found else None


def environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process. Other users' processes require root."""
    pairs = (item.partition("=") for item in read(pid, "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def opened(pid: int) -> set[str]:
    """Return the targets of a process's descriptors. Other users' processes require root."""
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue  # closed in the meantime
    except OSError:
        return set()
    return found


def children(pid: int) -> list[int]:
    """Return the child processes. If the kernel does not list them per thread, all processes are read."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, files.read(f"/proc/{pid}/task/{task}/children").split())
    except FileNotFoundError:
        return [one for one in ids() if (seen := status(one)) and seen.parent == pid]
    except OSError:
        pass  # the process ended in the meantime
    return found


def who(pid: int) -> dict[str, Any]:
    """Return a description of a process: {pid, command, user, unit}."""
    return {"pid": pid, "command": " ".join(words(pid))[:MOST_COMMAND], "user": owner(pid), "unit": unit(pid)}


def known(pid: int) -> dict[str, Any]:
    """Return what every user may see of a process."""
    seen = status(pid)
    return {
        "pid": pid,
        "name": read(pid, "comm").strip(),
        "owner": owner(pid),
        "started": seen.started / TICKS if seen else None,
        "cgroup": read(pid, "cgroup"),
    }


def is_of_launch(pid: int, launch: LaunchUnit, uid: int) -> bool:
    """Return whether a process is in a launch's unit, or belongs to the launch's user and has the launch's mark.

    The mark alone does not prove it, because every user chooses their own environment.
    """
    if launch_at(pid) == launch:
        return True
    return user_id(pid) == uid and environment(pid).get(LAUNCH_MARK) == launch.id
