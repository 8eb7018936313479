"""Processes that a launch left behind: in its unit, with its mark, or of a user that has nothing else to do here."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ..tools import process
from ..tools.as_user import SilentError, as_user
from . import state

if TYPE_CHECKING:
    import pwd

Json = dict[str, Any]

MADE_BY_MUSTER = "Runs the cluster's training"  # the account's comment (role node_baseline)
NO_LOGIN = {"nologin", "false"}
OWN_UNITS = "muster-look-"  # how the names of units begin in which Muster itself looks as the training user
MANAGERS = {"systemd"}  # a user's own manager, which ends by itself some seconds after the last login
SECONDS = 10.0
PATIENCE = 1.0  # for what ends just behind the unit, such as a command over ssh from another node
MOST = 50


def leftovers(launch_id: str, user: pwd.struct_passwd | None) -> tuple[list[Json], str]:
    """Return who is left, and why that could not be seen, if so.

    Looked at in a process of its own: a process can have it that whoever reads its command line waits for ever.
    """
    if user is None:
        return [], ""
    all_of_it = belongs_to_launches(launch_id, user)
    try:
        found = as_user(None, lambda: _look(launch_id, user.pw_uid, all_of_it=all_of_it), seconds=SECONDS)
    except SilentError as silent:
        return [], f"its processes could not be looked at: {silent.strerror}"
    return found, ""


def belongs_to_launches(launch_id: str, user: pwd.struct_passwd) -> bool:
    """Whether whatever this user runs here comes from this launch: nobody logs in as it, and no other launch runs."""
    if user.pw_gecos.split(",")[0] != MADE_BY_MUSTER and os.path.basename(user.pw_shell) not in NO_LOGIN:
        return False
    if user.pw_uid in {0, _reader(launch_id)}:
        return False
    others = [name for name in _launches() if name != launch_id]
    return all(state.is_over(name) for name in others)


def _launches() -> list[str]:
    try:
        return [name for name in os.listdir(state.root()) if process.LAUNCH_ID.match(name)]
    except OSError:
        return []


def _reader(launch_id: str) -> int:
    """Return who looks at the launch, and has its lease."""
    try:
        return os.stat(f"{state.state_dir(launch_id)}/lease").st_uid
    except OSError:
        return 0


def _look(launch_id: str, uid: int, *, all_of_it: bool) -> list[Json]:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [pid for pid in process.ids() if _is_left(pid, launch_id, uid, all_of_it=all_of_it)]
        if not found or time.monotonic() > deadline:
            return [process.who(pid) for pid in found[:MOST]]
        time.sleep(0.1)


def _is_left(pid: int, launch_id: str, uid: int, *, all_of_it: bool) -> bool:
    if not process.runs(pid):
        return False
    if process.is_of_launch(pid, state.launch(launch_id), uid):
        return True
    if not all_of_it or process.user_id(pid) != uid:
        return False
    unit = process.outermost_unit(pid)
    if unit.startswith(OWN_UNITS):
        return False
    return not (unit == f"user@{uid}.service" and os.path.basename(process.executable(pid)) in MANAGERS)
