"""Processes of this node: whose one is, when it began, whether it still runs; and those of a launch."""

from __future__ import annotations

import os
import re
import time
from typing import Any, NamedTuple

from . import files

# What every process of a launch has in its environment, and the unit that it is started in.
LAUNCH_MARK = "MUSTER_LAUNCH_ID"
LAUNCH_UNIT = "muster-launch-{}.service"
LAUNCH_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}\Z")
A_LAUNCH_UNIT = re.compile(re.escape(LAUNCH_UNIT).replace(r"\{\}", rf"({LAUNCH_ID.pattern[:-2]})"))
A_MANAGER = re.compile(r"user@(\d+)\.service")
SYSTEMD_PATH = re.compile(r"^(0:|\d+:name=systemd):(/.*)$", re.MULTILINE)
GONE = ("Z", "X")
TICKS = os.sysconf("SC_CLK_TCK")
MOST_COMMAND = 200  # characters of a command line that is quoted


class Status(NamedTuple):
    """state: the kernel's letter. cpu: seconds. started: ticks since the boot; with the PID it names one process."""

    state: str
    parent: int
    cpu: float
    started: int


class Launch(NamedTuple):
    """A launch by its unit. uid: in whose own manager it runs; None for one of the system's, which only root makes.

    Whoever has a manager gives units in it any name, so that the id alone says nothing of whose launch it is.
    """

    id: str
    uid: int | None = None


def ids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def status(pid: int) -> Status | None:
    """Return nothing of one that is gone."""
    # The name stands in brackets, and may hold anything.
    words = read(pid, "stat").rpartition(")")[2].split()
    if len(words) < 20:
        return None
    return Status(words[0], int(words[1]), (int(words[11]) + int(words[12])) / TICKS, int(words[19]))


def runs(pid: int, started: int | None = None) -> bool:
    """Whether a process runs, and is the one that began then."""
    seen = status(pid)
    return seen is not None and seen.state not in GONE and started in {None, seen.started}


def read(pid: int, name: str) -> str:
    """Return what the kernel says of a process, empty where it is gone or not ours to see."""
    return files.text(f"/proc/{pid}/{name}") or ""


def shown(pid: int) -> str:
    """Return what a process calls itself, and its PID, for people. Its user chooses the name: it is quoted."""
    letters = read(pid, "comm").removesuffix("\n")
    name = "".join(letter if letter.isprintable() and letter != '"' else "?" for letter in letters).strip()
    return f'"{name}" ({pid})' if name else f"a process ({pid})"


def owner(pid: int) -> str:
    try:
        return files.user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""


def words(pid: int) -> list[str]:
    """Return its command line."""
    return [word for word in read(pid, "cmdline").split("\0") if word]


def executable(pid: int) -> str:
    """Return the path of the program that it runs; of others' processes, root alone may see it."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def unit(pid: int) -> str:
    """Return the innermost unit that it belongs to."""
    leaves = (line.rpartition("/")[2] for line in reversed(read(pid, "cgroup").splitlines()))
    return next((leaf for leaf in leaves if leaf.endswith((".service", ".scope"))), "")


def outermost_unit(pid: int) -> str:
    """Return the unit of the system that it belongs to. Units within it, as those of a user's own manager, have any
    name that this user likes."""
    return next(iter(_units(pid)), "")


def _units(pid: int) -> list[str]:
    """Return the units that it belongs to, the outermost first.

    systemd keeps them in its own tree of cgroup v1, or in that of v2. The kernel lists both, also the one that systemd
    does not use, in which nothing belongs to a unit.
    """
    first = _cgroups(1)
    for tree, path in _cgroups(pid).items():
        # Where PID 1 itself is in a unit of a host beyond, all paths begin there.
        beyond = first.get(tree, "").removesuffix("/init.scope")
        parts = path.removeprefix(beyond).split("/")
        if units := [part for part in parts if part.endswith((".service", ".scope"))]:
            return units
    return []


def _cgroups(pid: int) -> dict[str, str]:
    return dict(SYSTEMD_PATH.findall(read(pid, "cgroup")))


def launch_at(pid: int) -> Launch | None:
    """Return the launch whose unit it belongs to, in the system's manager or in a user's own."""
    outer, inner = [*_units(pid), "", ""][:2]
    if found := A_LAUNCH_UNIT.fullmatch(outer):
        return Launch(found[1])
    manager, found = A_MANAGER.fullmatch(outer), A_LAUNCH_UNIT.fullmatch(inner)
    return Launch(found[1], int(manager[1])) if manager and found else None


def in_launches() -> dict[tuple[int | None, str], list[int]]:
    """Return by (uid of a user's own manager, or None; id) the processes in the units of launches, the first one began
    first. Which unit a process belongs to, the kernel says to everybody."""
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
    """Return the seconds since it began, asleep or not; nothing of one that is gone."""
    seen = status(pid)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - seen.started / TICKS) if seen else None


def user_id(pid: int) -> int | None:
    """Return its real uid, also where it hides itself; None for one that is gone."""
    found = re.search(r"^Uid:\t(\d+)", read(pid, "status"), re.MULTILINE)
    return int(found[1]) if found else None


def environment(pid: int) -> dict[str, str]:
    """Return what it was started with; of others' processes, root alone may see it."""
    pairs = (item.partition("=") for item in read(pid, "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def opened(pid: int) -> set[str]:
    """Return where its descriptors lead; of others' processes, root alone may see it."""
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue  # closed between the listing and the look
    except OSError:
        return set()
    return found


def children(pid: int) -> list[int]:
    """Return its child processes. The kernel lists them per thread where it is built to; else all are read."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, files.read(f"/proc/{pid}/task/{task}/children").split())
    except FileNotFoundError:
        return [one for one in ids() if (seen := status(one)) and seen.parent == pid]
    except OSError:
        pass  # it ended between two of these reads
    return found


def who(pid: int) -> dict[str, Any]:
    """Return who one process is, for a sentence: {pid, command, user, unit}."""
    return {"pid": pid, "command": " ".join(words(pid))[:MOST_COMMAND], "user": owner(pid), "unit": unit(pid)}


def known(pid: int) -> dict[str, Any]:
    """Return what everybody may see of a process; nothing of one that is gone."""
    seen = status(pid)
    return {
        "pid": pid,
        "name": read(pid, "comm").strip(),
        "owner": owner(pid),
        "started": seen.started / TICKS if seen else None,
        "cgroup": read(pid, "cgroup"),
    }


def is_of_launch(pid: int, launch: Launch, uid: int) -> bool:
    """Whether it is in a launch's unit, or a process of the launch's user that carries its mark.

    A mark alone says nothing: anybody chooses their own environment.
    """
    if launch_at(pid) == launch:
        return True
    return user_id(pid) == uid and environment(pid).get(LAUNCH_MARK) == launch.id
