"""How a launch begins on a node: its two folders and its unit, and what earlier launches left there."""

from __future__ import annotations

import base64
import glob
import json
import os
import pwd
import shutil
import sys
import time
from typing import Any

from ..tools import files, process
from ..tools.program import own_text
from ..tools.run import run as command
from . import state
from .seats import alone, offer, reserved

Json = dict[str, Any]

# Only the training user and the group of the one who looks come past these two directories; what is inside is readable
# to whoever got that far. (A set-group-ID bit instead would be lost: the training user is not in that group.)
OUTER_MODE = 0o750
RESERVE_SECONDS = 1.0  # then the supervisor is told who has the seats
LIMIT_SLACK = 60  # seconds behind the time limit after which systemd ends a unit whose main process did not


def start(spec: Json) -> Json:
    """Make the two directories and the unit, and wait a moment for its seats. spec: see roles/launch."""
    os.umask(0o022)  # whatever the one says who logs in
    with alone():
        error = make(spec)
    taken = None if error or spec["shared"] else reserved(spec["launch_id"], RESERVE_SECONDS)
    return {"started": not error, "error": error, "time": time.time(), "reserved": taken}


def make(spec: Json) -> str:
    """Return why the unit could not be made, or nothing."""
    launch_id = spec["launch_id"]
    entry = pwd.getpwnam(spec["user"])
    reader_uid, reader_gid = spec["reader"]["uid"], spec["reader"]["gid"]
    folder, run_dir = state.state_dir(launch_id), spec["run_dir"]
    os.makedirs(os.path.dirname(run_dir), mode=0o755, exist_ok=True)
    forget_ended_launches()
    drop_old_runs(os.path.dirname(run_dir), spec["keep"])
    os.makedirs(state.STATE_ROOT, mode=0o755, exist_ok=True)
    files.make_folder(folder, mode=0o755)
    files.make_folder(run_dir, mode=0o700)
    # What root writes for the training user is written before they may change anything beside it.
    if spec.get("script_name"):
        path, body = os.path.join(run_dir, spec["script_name"]), base64.b64decode(spec.pop("script_body"))
        files.replace(path, body, mode=0o644, owner=(entry.pw_uid, entry.pw_gid))
    # Written by the training user, readable by the user who looks (without sudo: a look each second must not fill the
    # journal), and by nobody else.
    files.give_folder(run_dir, mode=OUTER_MODE, owner=(entry.pw_uid, reader_gid))
    offer(folder, spec["seats"], entry.pw_gid)
    files.make_folder(folder + "/unit", mode=OUTER_MODE, owner=(entry.pw_uid, reader_gid))
    program = folder + "/node.py"
    files.replace(program, own_text().encode(), mode=0o644)
    # The environment may hold tokens: it travels in a file that only root and the training user read, never in argv.
    files.replace(folder + "/spec.json", json.dumps(spec).encode(), mode=0o640, owner=(0, entry.pw_gid))
    lease = state.new_lease(spec["lease"], state.TAKE)
    files.replace(folder + "/lease", lease, mode=0o644, owner=(reader_uid, reader_gid))
    # Every process of the launch carries the mark by which `stop` looks for what is left.
    properties = {**spec["properties"], "Environment": process.LAUNCH_MARK + "=" + launch_id}
    if spec["time_limit"] and not spec["waits"]:
        properties["RuntimeMaxSec"] = f"{spec['time_limit'] + LIMIT_SLACK}s"
    argv = [
        "systemd-run",
        "--quiet",
        "--unit",
        state.unit_name(launch_id),
        "--description",
        "Muster launch " + launch_id,
    ]
    argv += [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    argv += ["--", sys.executable, "-I", "-S", program, "run", folder]
    done = command(*argv, seconds=state.SYSTEMCTL_SECONDS)
    return "" if done.code == 0 else done.aside.strip() or done.why


def forget_ended_launches() -> None:
    """Clear away the state of launches that ended when no supervisor could reach this node."""
    for path in glob.glob(state.STATE_ROOT + "/*"):
        unit = state.unit_name(os.path.basename(path))
        if state.unit_state(unit)["ActiveState"] in ("inactive", "failed"):
            command("systemctl", "reset-failed", unit, seconds=state.SYSTEMCTL_SECONDS)
            shutil.rmtree(path, ignore_errors=True)


def drop_old_runs(root: str, keep: int) -> None:
    """Of finished launches, keep the newest `keep` run directories."""
    # The folder may be one that the user has other things in.
    runs = [
        entry
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False) and process.LAUNCH_ID.match(entry.name)
    ]
    finished = [entry for entry in runs if not os.path.isdir(state.state_dir(entry.name))]
    for entry in sorted(finished, key=lambda one: one.stat().st_mtime, reverse=True)[max(keep - 1, 0) :]:
        shutil.rmtree(entry.path, ignore_errors=True)
