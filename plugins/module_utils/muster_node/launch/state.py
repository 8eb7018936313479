"""What a launch has on a node: its unit, and its state in memory, so that a full disk cannot hide what happened.

/run/muster/launches/ID   the state
RUN_ROOT/ID               logs, and whatever the job writes into its working directory
"""

from __future__ import annotations

import json
import time
from typing import Any

from ..tools import files, process
from ..tools.run import run as command

STATE_ROOT = "/run/muster/launches"
LEASE_FORMAT = "{:>20.3f}\n"  # of one width, so that it is overwritten in place by a single write
SYSTEMCTL_SECONDS = 30


def state_dir(launch_id: str) -> str:
    return STATE_ROOT + "/" + launch_id


def unit_name(launch_id: str) -> str:
    return process.LAUNCH_UNIT.format(launch_id)


def unit_state(unit: str) -> dict[str, str]:
    names = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus")
    done = command("systemctl", "show", unit, "--property", ",".join(names), seconds=SYSTEMCTL_SECONDS)
    state = dict.fromkeys(names, "")
    for line in done.text.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def read_json(path: str) -> Any:
    """Return what a file holds; None where there is none, or none that is JSON."""
    try:
        return json.loads(files.text(path) or "")
    except ValueError:
        return None


def replace_json(path: str, value: Any) -> None:
    files.replace(path, json.dumps(value).encode())


def lease_is_held(state: str) -> bool:
    """A deadline on the monotonic clock: a stepped wall clock neither ends nor prolongs a launch."""
    try:
        return time.monotonic() < float(files.text(state + "/lease") or "0")
    except ValueError:
        return False


def renew_lease(state: str, seconds: float) -> None:
    try:
        files.overwrite(state + "/lease", LEASE_FORMAT.format(time.monotonic() + seconds).encode())
    except OSError:
        return  # ended and cleared away meanwhile: the report says so
