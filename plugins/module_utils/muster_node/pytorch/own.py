"""The folder of a launch user's own environments on a node. Only the login user reads and writes it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

from ansible.module_utils.muster.launch.manager import ADMINISTRATOR, GROUP
from ansible.module_utils.muster.pytorch.environments import folder_of, own_root

from ..launch.own import is_launch_user
from ..tools.result import RefusedError, diff, lines
from ..tools.trust import foreign_writer
from .memory import Forgotten
from .root import LookedAs


def refuse_root() -> None:
    """Root neither reads nor writes in the folder, whose owner can replace every name in it."""
    if os.geteuid() == 0:
        what = "root logs in, but an own environment belongs to an ordinary account"
        raise RefusedError(what, "Log in as yourself (ansible_user), without ansible_become")


def own_folder(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Check that the login user can have environments. Report those that are not declared, and in the step provide
    with `prune`, remove them. params: options of library/pytorch_env.py."""
    user = pwd.getpwuid(os.geteuid())
    if not is_launch_user(user):
        raise RefusedError(f"{user.pw_name} is not in the group {GROUP}", ADMINISTRATOR)
    home = folder_of(params["users_root"], user.pw_name)
    if not Path(home).is_dir() or foreign_writer(home):
        raise RefusedError(f"the folder {home} does not exist, or another account can write to it", ADMINISTRATOR)
    folder = own_root(params["users_root"], user.pw_name)
    there = Forgotten(folder, params["environments"], LookedAs.choose(user.pw_name))
    names, notes, reasons = there.names, there.notes, there.reasons
    if not params["prune"] or params["mode"] == "verify":
        notes = [f"environment {name} is not declared, and is kept (environment_prune)" for name in names]
        names = reasons = []
    if names and params["step"] == "provide" and not check:
        there.remove()
    return {
        "changed": bool(names),
        "login": user.pw_name,
        "forget": names,
        "plan": {"reasons": reasons, "build": "", "switch": False, "remove": []},
        "notes": [f"{params['node']}: {note}." for note in notes],
        **({"diff": diff(folder, lines(names), "")} if names else {}),
    }
