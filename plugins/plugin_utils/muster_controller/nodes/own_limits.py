"""Resource limits of the controller for the connections of a launch. muster.launch.grants defines the required
limits."""

from __future__ import annotations

import resource
from pathlib import Path

from muster.launch.grants import Grants, needed

GROUPS = Path("/sys/fs/cgroup")
TOO_MANY = "Too many open files"


def explained(text: str) -> str:
    """Return the error. If a limit of the controller caused the error, add an explanation."""
    if TOO_MANY not in text:
        return text
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the controller's limit of {soft} open files is too low; to raise it, run ulimit -n {2 * soft} ({text})"


def raise_for(nodes: int) -> Grants:
    """Raise soft limits, at most to the hard limits, to what a launch on this number of nodes needs. Return the new
    limits."""
    needs = needed(nodes)
    return Grants(
        raised(resource.RLIMIT_NOFILE, needs.files),
        raised(resource.RLIMIT_NPROC, needs.processes),
        room_for_processes(),
    )


def raised(kind: int, need: int | None) -> int | None:
    soft, hard = (None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(kind))
    if soft is None or need is None or soft >= need:
        return soft
    granted = need if hard is None else min(need, hard)
    resource.setrlimit(kind, (granted, resource.RLIM_INFINITY if hard is None else hard))
    return granted


def room_for_processes(groups: Path = GROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return how many more processes and threads the control group of this process allows, or None if unlimited."""
    try:
        path = next(line[len("0::/") :] for line in own.read_text().splitlines() if line.startswith("0::/"))
        group = groups / path
        return int((group / "pids.max").read_text()) - int((group / "pids.current").read_text())
    except (OSError, ValueError, StopIteration):  # no cgroup v2, or "max"
        return None
