"""Start a launch on a node: create its folders and its unit, and remove remains of earlier launches."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tools import files, process, trees, trust
from ..tools.program import own_text
from . import container, project, state
from .kept import ENDED, PLAN, keep_ends, keep_plan
from .seats import alone, offer, reserved

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
SECONDS = 5.0  # time limit for removals; the rest is removed at the next start
MEASURED = 2.0  # seconds to measure the sizes before that; logs that are not measured count as empty
OF_A_RUN = {
    "logs",
    "script",
    "project",
    PLAN,
    ENDED,
}  # a folder with other content is from an earlier version of Muster, and the job may have written to it
HALF_GONE = ".pruned."  # prefix of the names of folders that are being removed


# ---------------------------------------------------------------- pruning

# Logs of earlier launches: the newest are kept, up to a number and a size. Other files of a job stay unchanged.


class StoredLaunch(NamedTuple):
    """The folder of an earlier launch. began: start time in seconds (node's clock). size: bytes on disk."""

    launch_id: str
    began: float
    size: int


def prune(run_root: str, keep: int, keep_bytes: int) -> Json:
    """Remove the folders of surplus launches. The launch that is starting counts as well. Return {pruned: ids,
    bytes}."""
    pruned, size = [], 0
    with files.folder(run_root, links=True) as root:
        runs = _runs(root, time.monotonic() + MEASURED)
        deadline = time.monotonic() + SECONDS
        for run in surplus(runs, keep - 1, keep_bytes):
            if state.is_over(run.launch_id):
                os.rename(run.launch_id, f"{HALF_GONE}{run.launch_id}", src_dir_fd=root, dst_dir_fd=root)
                pruned.append(run.launch_id)
                size += run.size
        for name in os.listdir(root):
            if name.startswith(HALF_GONE):
                trees.remove(root, name, deadline)
    return {"pruned": pruned, "bytes": size}


def surplus(runs: list[StoredLaunch], keep: int, keep_bytes: int) -> list[StoredLaunch]:
    """Return the runs to remove, oldest first: all but the newest `keep`, and runs that exceed `keep_bytes` (0: no
    limit) together with all newer runs. The newest run is never removed because of its size."""
    found, total = [], 0
    for place, run in enumerate(sorted(runs, key=lambda one: one.began, reverse=True)):
        total += run.size
        if place >= max(keep, 0) or (keep_bytes and place and total > keep_bytes):
            found.append(run)
    return found[::-1]


def _runs(root: int, deadline: float) -> list[StoredLaunch]:
    """Return the folders of launches that have no state. Running launches always have a state."""
    found = []
    for name in os.listdir(root):
        if not process.LAUNCH_ID.match(name) or os.path.lexists(state.state_dir(name)):
            continue
        try:
            with files.folder(name, within=root, owner=os.geteuid()) as handle:
                began = os.fstat(handle).st_mtime
                if set(os.listdir(handle)) <= OF_A_RUN:
                    found.append(StoredLaunch(name, began, trees.size(root, name, deadline)))
        except OSError:
            continue  # owned by the training user, or not a folder
    return found


# For the training user, and the group of the account that reads the state (without sudo: a request each second must not
# fill the journal). The content is readable for users with access to the folder. (A set-group-ID bit would be lost: the
# training user is not in that group.)
OUTER_MODE = 0o750


# ---------------------------------------------------------------- folders

# The folders of a launch. Root writes only to folders that root owns. The training user writes to separate folders
# within them. No user can replace one of them by a link.


def make_folders(spec: Json, user: pwd.struct_passwd) -> str:
    """Create all files of the unit, and return the path of the unit's program. Raises files.UnsafePathError."""
    folder, run_dir = state.state_dir(spec["launch_id"]), spec["run_dir"]
    own, shared = (user.pw_uid, user.pw_gid), (user.pw_uid, spec["reader"]["gid"])
    for path in (folder, run_dir):
        files.make_folder(path, mode=0o755)
    keep_plan(spec)
    files.make_folder(f"{run_dir}/logs", mode=OUTER_MODE, owner=shared)
    if spec["script_name"]:
        files.make_folder(f"{run_dir}/script", mode=0o755)
        body = base64.b64decode(spec.pop("script_body"))
        files.replace(f"{run_dir}/script/{spec['script_name']}", body, mode=0o600, owner=own)
    if spec.get("project"):
        project.place(spec, user)
    if spec["work_dir"]:
        make_kept(spec["work_dir"], own)
    if spec.get("cache_root"):
        make_kept(spec["cache_root"], own)
    files.make_folder(f"{folder}/unit", mode=OUTER_MODE, owner=shared)
    if hook := spec.pop("hook", ""):
        place_hook(folder, hook, spec["env"], own)
    files.replace(f"{folder}/node.py", own_text().encode(), mode=0o644)
    # The environment may contain tokens: it is passed in a file that only root and the training user can read, never in
    # argv. The user's group may have other members.
    files.replace(f"{folder}/spec.json", json.dumps(spec).encode(), mode=0o400, owner=own)
    reader = (spec["reader"]["uid"], spec["reader"]["gid"])
    files.replace(f"{folder}/lease", state.new_lease(spec["lease"], state.TAKE), mode=0o644, owner=reader)
    return f"{folder}/node.py"


def place_hook(folder: str, hook: str, env: dict[str, str], owner: tuple[int, int]) -> None:
    """Make Python import the hook (diagnosis/hook.py) first. The hook then removes itself from the path."""
    files.make_folder(f"{folder}/hook", mode=0o755)
    files.replace(f"{folder}/hook/sitecustomize.py", hook.encode(), mode=0o644)
    files.make_folder(f"{folder}/observe", mode=0o700, owner=owner)
    env["PYTHONPATH"] = ":".join(filter(None, (f"{folder}/hook", env.get("PYTHONPATH"))))


def make_kept(path: str, owner: tuple[int, int]) -> None:
    """Create a folder that is kept after the launch, if no earlier launch has created it."""
    try:
        files.make_folder(path, mode=0o700, owner=owner)
    except FileExistsError:
        with files.folder(path, owner=owner[0]):
            return


RESERVE = 1 << 30  # minimum bytes of memory that no launch gets; or a twentieth of all memory
RESERVE_SECONDS = 1.0  # after that, the holders of the slots are reported to the supervisor
LIMIT_SLACK = 60  # seconds after the time limit until systemd ends a unit that has not ended


def start(spec: Json, meanwhile: Callable[[], Any] | None = None) -> Json:
    """Create the folders and the unit, and wait briefly for the unit's slots. spec: see StartRequest. meanwhile: called
    before the wait; its return value is added to the answer as the record."""
    os.umask(0o022)  # independent of the umask of the account that logs in
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
    # Read again after all steps that could have changed it: the launch starts only if all nodes report the same digest.
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
    """Return an error if a launch with one of these ids (the launch itself or an earlier attempt) has not ended; else
    ""."""
    running = [launch_id for launch_id in launches if not state.is_over(launch_id)]
    return f"not ended yet: {' and '.join(map(state.unit_name, running))}" if running else ""


def make_room(spec: Json) -> Json:
    """Create the parent folders of all launches, and remove remains of earlier launches."""
    run_root = os.path.dirname(spec["run_dir"])
    above = [os.path.dirname(path) for path in (spec["work_dir"], spec.get("cache_root", ""))]
    for path in (state.root(), run_root, *above):
        if path:
            trust.make_folder(path)
    keep_ends(run_root)
    forget_ended_launches()
    return prune(run_root, spec["keep"], spec["keep_bytes"])


def make(spec: Json) -> str:
    """Create the launch's folders and its unit. Return the error, or "" on success."""
    launch_id = spec["launch_id"]
    user = pwd.getpwnam(spec["user"])
    program = make_folders(spec, user)
    offer(state.state_dir(launch_id), spec["seats"], user.pw_gid)
    # Every process of the launch has the mark that `stop` uses to find leftover processes.
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
    """Return the memory limit of a launch in bytes. The remaining memory is for the system, sshd and Muster's own
    requests."""
    found = re.search(r"^MemTotal: +(\d+) kB", files.text("/proc/meminfo") or "", re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    return max(total - max(total // 20, RESERVE), total // 2)


def forget_ended_launches() -> None:
    """Remove the state of launches that ended while no supervisor could connect to this node."""
    for launch_id in os.listdir(state.root()):
        if process.LAUNCH_ID.match(launch_id) and state.is_over(launch_id):
            state.forget(launch_id)
