"""Resource limits of the controller for a launch's connections. The required limits are in muster.launch.grants."""

from __future__ import annotations

import resource
from pathlib import Path

from muster.launch.grants import Grants, needed

GROUPS = Path("/sys/fs/cgroup")
TOO_MANY = "Too many open files"


def explained(text: str) -> str:
    """Return the error with an explanation if the controller's own limit caused it."""
    if TOO_MANY not in text:
        return text
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the controller's limit of {soft} open files is too low; raise it with ulimit -n {2 * soft} ({text})"


def raise_for(nodes: int) -> Grants:
    """Raise soft limits towards hard limits, as far as a launch on this number of nodes needs. Return the new
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
    """Return the remaining number of processes and threads in the control group of this process; None if unlimited."""
    try:
        path = next(line[len("0::/") :] for line in own.read_text().splitlines() if line.startswith("0::/"))
        group = groups / path
        return int((group / "pids.max").read_text()) - int((group / "pids.current").read_text())
    except (OSError, ValueError, StopIteration):  # no cgroup v2, or "max"
        return None
