"""Start, query and stop the watcher of a detached launch with restarts on its head node.

The watcher is the controller's supervisor in a transient unit of the user of the launch. Its files:

/run/user/UID/muster/watchers/ID/watcher.pyz  the program from the controller
/run/user/UID/muster/watchers/ID/spec.json    its request, with the values of environment variables: readable only by
                                              its user, and removed after reading
/run/user/UID/muster/watchers/ID/state.json   its state: attempts, messages and finally the verdict

All files are in memory. They are lost when the node reboots, like the launch itself.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

from ..tools import files, process, trees, trust
from . import state

Json = dict[str, Any]

UNIT = "muster-watch-{}.service"
PROGRAM, SPEC, STATE = "watcher.pyz", "spec.json", "state.json"
KEPT = 10  # finished watchers whose state is kept
MOST_STATE = 16_000_000  # bytes
FORGET_SECONDS = 5.0
AT_WORK = ("activating", "active", "deactivating", "reloading")


def folder_of(launch_id: str) -> str:
    return f"{os.path.dirname(state.root())}/watchers/{launch_id}"


def begin(request: Json) -> Json:
    """Start the watcher. Return {error}. request: {launch_id, program (base64), spec, properties}."""
    folder = folder_of(request["launch_id"])
    try:
        trust.make_folder(os.path.dirname(folder))
        forget_old(os.path.dirname(folder))
        files.make_folder(folder, mode=0o700)
        files.replace(f"{folder}/{PROGRAM}", base64.b64decode(request["program"]), mode=0o600)
        files.replace(f"{folder}/{SPEC}", json.dumps(request["spec"]).encode(), mode=0o600)
    except OSError as problem:
        return {"error": f"{problem.filename or folder}: {problem.strerror}"}
    argv = ["--quiet", "--collect", "--unit", UNIT.format(request["launch_id"])]
    argv += ["--description", f"Watcher of Muster launch {request['launch_id']}"]
    argv += [word for name, value in request["properties"].items() for word in ("--property", f"{name}={value}")]
    done = state.ask_systemd("systemd-run", *argv, "--", sys.executable, "-I", "-S", f"{folder}/{PROGRAM}", folder)
    if done.code != 0:
        files.remove(f"{folder}/{SPEC}")
        return {"error": done.aside.strip() or done.why}
    return {"error": ""}


def word(request: Json) -> Json:
    """Return {alive, state}: whether the watcher is running, and its state. request: {launch_id}."""
    # Read the unit before the state: a unit that has ended has written its final state.
    alive = is_alive(request["launch_id"])
    try:
        said = json.loads(files.read(f"{folder_of(request['launch_id'])}/{STATE}", most=MOST_STATE))
    except (OSError, ValueError):
        said = None
    return {"alive": alive, "state": said}


def end(request: Json) -> Json:
    """Stop the watcher and its launch, so that no further attempt starts. request: {launch_id}."""
    done = state.systemctl("stop", "--no-block", UNIT.format(request["launch_id"]))
    return {"error": "" if done.code == 0 or not is_alive(request["launch_id"]) else done.aside.strip() or done.why}


def is_alive(launch_id: str) -> bool:
    """Return whether the watcher is running; True if systemd does not respond."""
    return state.unit_state(UNIT.format(launch_id))["ActiveState"] in ("", *AT_WORK)


def forget_old(folder: str) -> None:
    names = sorted((name for name in os.listdir(folder) if process.LAUNCH_ID.match(name)), reverse=True)
    for name in [name for name in names if not is_alive(name)][KEPT:]:
        with suppress(OSError), files.folder(folder) as there:
            trees.remove(there, name, time.monotonic() + FORGET_SECONDS)
