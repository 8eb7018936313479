"""The processors that a rank has: how many, with whom it shares them, and whether a quota stops it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .context import Context


def counted() -> tuple[int, int, int]:
    """When this machine's kernel began, and how often it has switched and begun processes since then."""
    told = dict.fromkeys(("btime", "ctxt", "processes"), 0)
    for line in text_of(Path("/proc/stat")).splitlines():
        name, _, value = line.partition(" ")
        if name in told and value.isdigit():
            told[name] = int(value)
    return told["btime"], told["ctxt"], told["processes"]


def same_machine(one: Sequence[int], two: Sequence[int]) -> bool:
    """Of two that were asked within a few seconds. Two machines that began in the same second have not done equally
    much; a boot id is no help, since a container may have one of its own.
    """
    near = all(
        abs(first - second) <= 0.01 * max(first, second, 1) for first, second in zip(one[1:], two[1:], strict=True)
    )
    return abs(one[0] - two[0]) <= 1 and near


def shared(context: Context) -> str:
    """Why ranks have to share cores, on whichever machine; empty where none has to. All ranks must ask."""
    return shared_on(machines(context))


def machines(context: Context) -> list[tuple[int, list[int]]]:
    """Of each rank, the number of its machine and the cores it may use. Containers of one machine have one number. All
    ranks must ask.
    """
    known: list[Sequence[int]] = []
    found = []
    for machine, mine in context.gather((counted(), sorted(os.sched_getaffinity(0)))):
        number = next((at for at, other in enumerate(known) if same_machine(machine, other)), len(known))
        if number == len(known):
            known.append(machine)
        found.append((number, mine))
    return found


def shared_on(ranks: Sequence[tuple[int, list[int]]]) -> str:
    """Each rank needs a core, and what sends and receives for it another."""
    for number in sorted({machine for machine, _ in ranks}):
        allowed = [cores for machine, cores in ranks if machine == number]
        count = len({core for one in allowed for core in one})
        if 2 * len(allowed) > count:
            who = "1 rank has" if len(allowed) == 1 else f"{len(allowed)} ranks have"
            return f"{who} {count} core{'' if count == 1 else 's'} of one machine"
    return ""


def throttled_seconds() -> float | None:
    """How long quotas have stopped this process's cgroup and those above it so far; None where that is not told."""
    told = [seconds for folder in folders() if (seconds := stopped(folder)) is not None]
    return max(told, default=None)


def stopped(folder: Path) -> float | None:
    """cgroup 2 counts microseconds, cgroup 1 nanoseconds."""
    for line in text_of(folder / "cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("throttled_usec", "throttled_time") and value.isdigit():
            return int(value) / (1e6 if name == "throttled_usec" else 1e9)
    return None


def quota() -> float | None:
    """The smallest number of processors that a quota leaves; None where there is none."""
    told = [part for folder in folders() if (part := quota_of(folder)) is not None]
    return min(told, default=None)


def quota_of(folder: Path) -> float | None:
    words = text_of(folder / "cpu.max").split()
    if not words:
        words = [text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    with suppress(ValueError, IndexError, ZeroDivisionError):
        part = int(words[0]) / int(words[1])
        return part if part > 0 else None
    return None


def folders() -> list[Path]:
    """The cgroup of this process that has the processors, and those above it, as far as they are seen from here."""
    mounted = mounts(text_of(Path("/proc/self/mountinfo")))
    for line in text_of(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for kind, root, place in mounted:
            if kind == controllers and (kind or (place / "cgroup.controllers").exists()):
                # A container sees a part of the tree: its own cgroup is the root of what is mounted.
                own = place / os.path.relpath(path, root) if f"{path}/".startswith(f"{root.rstrip('/')}/") else place
                return [folder for folder in (own, *own.parents) if folder == place or place in folder.parents]
    return []


def mounts(text: str) -> list[tuple[str, str, Path]]:
    """Of mountinfo, the cgroups that have the processors: the controllers (none in cgroup 2), which part of the tree is
    mounted, and where. Those of version 1 first: where both are there, they have the processors.
    """
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, _, options) = before.split(), after.split()[:3] if len(after.split()) > 2 else ("", "", "")
        controllers = [name for name in options.split(",") if name in ("cpu", "cpuacct")]
        if kind == "cgroup" and "cpu" in controllers:
            found.append((",".join(controllers), words[3], Path(words[4])))
        elif kind == "cgroup2":
            found.append(("", words[3], Path(words[4])))
    return sorted(found, key=lambda one: not one[0])


def heat() -> float | None:
    """The hottest thermal zone in degrees Celsius; None where none is readable, as in most virtual machines."""
    zones = Path("/sys/class/thermal").glob("thermal_zone*/temp")
    told = [int(text) / 1000 for zone in zones if (text := text_of(zone).strip()).isdigit()]
    return max(told, default=None)


def clock_mhz() -> float | None:
    """The mean clock of the processors now."""
    lines = text_of(Path("/proc/cpuinfo")).splitlines()
    told = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(sum(told) / len(told), 1) if told else None


def facts() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "mhz": clock_mhz(), "quota": quota()}


def text_of(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    return ""
