"""Inspect processes of this node: owner, start time and state. Find the processes of launches."""

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
    """The status of a process. state: the kernel's letter. cpu: CPU seconds. started: ticks since boot. PID and start
    time together identify a process."""

    state: str
    parent: int
    cpu: float
    started: int


class LaunchUnit(NamedTuple):
    """A launch, identified by its unit. uid: user whose manager runs the unit; None for the system manager, which only
    root can use.

    Users can choose any unit name in their own manager, so the id alone does not identify the user of a launch.
    """

    id: str
    uid: int | None = None


def ids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def status(pid: int) -> ProcessStatus | None:
    """Return the status of a process; None if the process has ended."""
    # The name is in parentheses and may contain any character.
    words = read(pid, "stat").rpartition(")")[2].split()
    if len(words) < 20:
        return None
    return ProcessStatus(words[0], int(words[1]), (int(words[11]) + int(words[12])) / TICKS, int(words[19]))


def boot() -> str:
    """Return a text that changes whenever the machine boots. The kernel of a container continues, so it includes the
    start of the first process."""
    first = status(1)
    kernel = (files.text("/proc/sys/kernel/random/boot_id") or "").strip()
    return f"{kernel} {first.started}" if first else kernel


def runs(pid: int, started: int | None = None) -> bool:
    """Return whether a process with this PID and start time is running."""
    seen = status(pid)
    return seen is not None and seen.state not in GONE and started in {None, seen.started}


def read(pid: int, name: str) -> str:
    """Return the text of a process's file in /proc; "" if the process has ended or is not accessible."""
    return files.text(f"/proc/{pid}/{name}") or ""


def shown(pid: int) -> str:
    """Return the name and PID of a process for messages. The name is quoted, because the user of the process can choose
    it."""
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
    """Return the path of a process's executable. Processes of other users require root."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def unit(pid: int) -> str:
    """Return the innermost unit of a process."""
    leaves = (line.rpartition("/")[2] for line in reversed(read(pid, "cgroup").splitlines()))
    return next((leaf for leaf in leaves if leaf.endswith((".service", ".scope"))), "")


def outermost_unit(pid: int) -> str:
    """Return the system unit of a process. Users can choose the names of units inside it, for example in their own
    manager."""
    return next(iter(_units(pid)), "")


def _units(pid: int) -> list[str]:
    """Return the units of a process, the outermost first.

    systemd uses either its own cgroup v1 tree or the v2 tree. The kernel lists both trees. The tree that systemd does
    not use contains no units.
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
    """Return the launch of a process, identified by the process's unit in the system manager or a user's manager."""
    outer, inner = [*_units(pid), "", ""][:2]
    if found := A_LAUNCH_UNIT.fullmatch(outer):
        return LaunchUnit(found[1])
    manager, found = A_MANAGER.fullmatch(outer), A_LAUNCH_UNIT.fullmatch(inner)
    return LaunchUnit(found[1], int(manager[1])) if manager and found else None


def in_launches() -> dict[tuple[int | None, str], list[int]]:
    """Return {(uid of the user's manager or None, launch id): processes in start order} for all launch units. The
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
    """Return the age of a process in seconds, including suspend; None if the process has ended."""
    seen = status(pid)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - seen.started / TICKS) if seen else None


def user_id(pid: int) -> int | None:
    """Return the real uid of a process, even if the process is not dumpable; None if the process has ended."""
    found = re.search(r"^Uid:\t(\d+)", read(pid, "status"), re.MULTILINE)
    return int(found[1]) if found else None


def environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process. Processes of other users require root."""
    pairs = (item.partition("=") for item in read(pid, "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def opened(pid: int) -> set[str]:
    """Return the targets of a process's file descriptors. Processes of other users require root."""
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
    """Return the child processes. If the kernel does not list children per thread, all processes are searched."""
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
    """Describe a process: {pid, command, user, unit}."""
    return {"pid": pid, "command": " ".join(words(pid))[:MOST_COMMAND], "user": owner(pid), "unit": unit(pid)}


def known(pid: int) -> dict[str, Any]:
    """Describe a process with data that every user can see."""
    seen = status(pid)
    return {
        "pid": pid,
        "name": read(pid, "comm").strip(),
        "owner": owner(pid),
        "started": seen.started / TICKS if seen else None,
        "cgroup": read(pid, "cgroup"),
    }


def is_of_launch(pid: int, launch: LaunchUnit, uid: int) -> bool:
    """Return whether a process is in a launch's unit, or belongs to the launch's user and has the launch's mark in its
    environment.

    The mark alone does not prove this, because every user can set any environment variable.
    """
    if launch_at(pid) == launch:
        return True
    return user_id(pid) == uid and environment(pid).get(LAUNCH_MARK) == launch.id
