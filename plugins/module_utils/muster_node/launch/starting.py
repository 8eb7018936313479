"""How a launch begins on a node: its two folders and its unit, and what earlier launches left there."""

from __future__ import annotations

import os
import pwd
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from ..tools import files, process, trust
from . import container, project, state
from .folders import make_folders
from .kept import keep_ends
from .pruning import prune
from .seats import alone, offer, reserved

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

RESERVE = 1 << 30  # bytes of memory that no launch gets, at least; or a twentieth of all
RESERVE_SECONDS = 1.0  # then the supervisor is told who has the seats
LIMIT_SLACK = 60  # seconds behind the time limit after which systemd ends a unit whose main process did not


def start(spec: Json, meanwhile: Callable[[], Any] | None = None) -> Json:
    """Make the folders and the unit, and wait a moment for its seats. spec: see StartRequest. meanwhile: what is done
    before that wait, and answered as the record."""
    os.umask(0o022)  # whatever the one says who logs in
    pruned: Json = {"pruned": [], "bytes": 0}
    with alone():
        try:
            error = still_there(spec["launch_id"], *spec["earlier"])
            if not error:
                pruned = make_room(spec)
                error = make(spec)
        except files.UnsafePathError as refused:
            error = f"{refused.filename} {refused.strerror}"
        except OSError as problem:  # a full disk, above all
            error = f"{problem.filename or spec['run_dir']}: {problem.strerror}"
    seen = meanwhile() if meanwhile and not error else None
    taken = None if error or spec["shared"] else reserved(spec["launch_id"], RESERVE_SECONDS)
    # Read once more, behind all that could still have changed it: nothing begins before all nodes have said the same.
    there = project.digest_there(spec["run_dir"]) if spec.get("project") and not error else ""
    return {
        "started": not error,
        "error": error,
        "time": time.time(),
        "reserved": taken,
        **pruned,
        "project": there,
        "record": seen,
    }


def still_there(*launches: str) -> str:
    """Return what is in the way of a new launch: one of the same id, or an earlier attempt, that has not ended."""
    running = [launch_id for launch_id in launches if not state.is_over(launch_id)]
    return f"{' and '.join(map(state.unit_name, running))} has not ended here" if running else ""


def make_room(spec: Json) -> Json:
    """Make the folders above all launches, and clear away what is left of earlier ones."""
    run_root = os.path.dirname(spec["run_dir"])
    above = [os.path.dirname(path) for path in (spec["work_dir"], spec.get("cache_root", ""))]
    for path in (state.root(), run_root, *above):
        if path:
            trust.make_folder(path)
    keep_ends(run_root)
    forget_ended_launches()
    return prune(run_root, spec["keep"], spec["keep_bytes"])


def make(spec: Json) -> str:
    """Make the launch's folders and its unit; return why that failed, or nothing."""
    launch_id = spec["launch_id"]
    user = pwd.getpwnam(spec["user"])
    program = make_folders(spec, user)
    offer(state.state_dir(launch_id), spec["seats"], user.pw_gid)
    # Every process of the launch carries the mark by which `stop` looks for what is left.
    properties = {**spec["properties"], "Environment": process.LAUNCH_MARK + "=" + launch_id}
    properties["MemoryMax"] = str(memory_limit())
    if spec["time_limit"] and not spec["waits"]:
        properties["RuntimeMaxSec"] = f"{spec['time_limit'] + spec.get('stop_timeout', 0) + LIMIT_SLACK}s"
    main = [sys.executable, "-I", "-S", program, "run", state.state_dir(launch_id)]
    argv = container.removal(launch_id) if spec.get("image") else []
    if spec.get("image"):
        main = container.command(spec, user, *main[1:])
    argv += ["--quiet", "--unit", state.unit_name(launch_id)]
    argv += ["--description", f"Muster launch {launch_id}"]
    argv += [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    argv += ["--", *main]
    done = state.ask_systemd("systemd-run", *argv)
    return "" if done.code == 0 else done.aside.strip() or done.why


def memory_limit() -> int:
    """Return the bytes that a launch may have: the rest keeps the system, sshd and the one who looks alive."""
    found = re.search(r"^MemTotal: +(\d+) kB", files.text("/proc/meminfo") or "", re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    return max(total - max(total // 20, RESERVE), total // 2)


def forget_ended_launches() -> None:
    """Clear away the state of launches that ended when no supervisor could reach this node."""
    for launch_id in os.listdir(state.root()):
        if process.LAUNCH_ID.match(launch_id) and state.is_over(launch_id):
            state.forget(launch_id)
