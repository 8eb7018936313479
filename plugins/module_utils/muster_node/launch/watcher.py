"""The watcher of a detached launch with restarts, on its head node: how it is begun, asked and ended.

It is the controller's own supervisor, in a transient unit of the user whose own launch it is. What it holds:

/run/user/UID/muster/watchers/ID/watcher.pyz  the program, as the controller has sent it
/run/user/UID/muster/watchers/ID/spec.json    what it is to do, with the values of the environment: for its user alone,
                                              and gone as soon as it is read
/run/user/UID/muster/watchers/ID/state.json   what it says: attempts, sentences, and in the end the verdict

All of it is in memory, and gone when the node starts anew; so is the launch.
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
KEPT = 10  # watchers that are over, whose word can still be asked for
MOST_STATE = 16_000_000  # bytes
FORGET_SECONDS = 5.0
AT_WORK = ("activating", "active", "deactivating", "reloading")


def folder_of(launch_id: str) -> str:
    return f"{os.path.dirname(state.root())}/watchers/{launch_id}"


def begin(request: Json) -> Json:
    """{error}; request: {launch_id, program (base64), spec, properties}."""
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
    """{alive, state}: what it has said, and whether it may say more. request: {launch_id}."""
    # The unit before its word: one that is seen to be over has said all.
    alive = is_alive(request["launch_id"])
    try:
        said = json.loads(files.read(f"{folder_of(request['launch_id'])}/{STATE}", most=MOST_STATE))
    except (OSError, ValueError):
        said = None
    return {"alive": alive, "state": said}


def end(request: Json) -> Json:
    """Ask it to end what it watches, and itself: no further attempt begins. request: {launch_id}."""
    done = state.systemctl("stop", "--no-block", UNIT.format(request["launch_id"]))
    return {"error": "" if done.code == 0 or not is_alive(request["launch_id"]) else done.aside.strip() or done.why}


def is_alive(launch_id: str) -> bool:
    """Not seen to be over: where systemd does not say, it counts as at work."""
    return state.unit_state(UNIT.format(launch_id))["ActiveState"] in ("", *AT_WORK)


def forget_old(folder: str) -> None:
    names = sorted((name for name in os.listdir(folder) if process.LAUNCH_ID.match(name)), reverse=True)
    for name in [name for name in names if not is_alive(name)][KEPT:]:
        with suppress(OSError), files.folder(folder) as there:
            trees.remove(there, name, time.monotonic() + FORGET_SECONDS)
