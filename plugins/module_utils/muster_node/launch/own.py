"""Collect the data that a user launch depends on: the user's systemd instance, its limits, and the accessible slots."""

from __future__ import annotations

import grp
import os
import pwd
import re
from contextlib import suppress
from typing import Any

from ..tools import files, process
from ..tools.run import run
from . import state
from .seats import readable

Json = dict[str, Any]

GROUP = "muster-launch"  # the group of launch users (role launch_users)
LINGER = "/var/lib/systemd/linger"
CGROUPS = "/sys/fs/cgroup"
# By its name in /proc/PID/limits, in the order of the answer.
LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}


def identity(_request: Json) -> Json:
    """Return the account that the controller logs in as, which must be able to read the state of launches."""
    user = pwd.getpwuid(os.getuid())
    return {
        "uid": user.pw_uid,
        "gid": os.getgid(),
        "name": user.pw_name,
        "launch_user": is_launch_user(user),
        "boot": process.boot(),
    }


def is_launch_user(user: pwd.struct_passwd) -> bool:
    """Return whether an account is a member of the group. Read the user database, because older sessions do not have
    the group yet."""
    if user.pw_uid == 0:
        return False
    try:
        group = grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return False
    return group in os.getgrouplist(user.pw_name, user.pw_gid)


def own_facts() -> Json | None:
    """Return OwnFacts of this user's systemd instance; None for an administrator launch."""
    if not state.is_own():
        return None
    user = pwd.getpwuid(os.getuid())
    asked = state.systemctl("show", "--property=Version")
    pid = manager_pid(user.pw_uid)
    return {
        "manager_why": asked.why,
        "lingers": os.path.exists(f"{LINGER}/{user.pw_name}"),
        "group_is_new": not knows_group(pid),
        "seats": readable(),
        "limits": limits(pid),
        "not_held": [name for name in ("memory", "pids") if name not in controllers(user.pw_uid)],
    }


def manager_pid(uid: int) -> int:
    """Return the main process of a user's systemd instance; 0 if unknown."""
    asked = run("systemctl", "show", f"user@{uid}.service", "--property=MainPID", "--value")
    return int(asked.text.strip() or 0) if asked.text.strip().isdecimal() else 0


def knows_group(pid: int) -> bool:
    """Return whether units of this instance are in the group. They are not if the instance started before the user was
    added."""
    found = re.search(r"^Groups:\t([\d ]*)", process.read(pid, "status"), re.MULTILINE)
    gid = re.search(r"^Gid:\t(\d+)", process.read(pid, "status"), re.MULTILINE)
    if found is None or gid is None:
        return True  # the access to the slots shows it
    with suppress(KeyError):
        return str(grp.getgrnam(GROUP).gr_gid) in [*found[1].split(), gid[1]]
    return False


def limits(pid: int) -> Json:
    """Return {name: hard limit} of this process; None means unlimited."""
    text = process.read(pid, "limits")
    found: Json = {}
    for name, title in LIMITS.items():
        line = re.search(rf"^{title} +\S+ +(\S+)", text, re.MULTILINE)
        if line and (line[1] == "unlimited" or line[1].isdecimal()):
            found[name] = None if line[1] == "unlimited" else int(line[1])
    return found


def controllers(uid: int) -> list[str]:
    """Return the cgroup controllers that systemd delegates to a user's instance. Delegation requires cgroup v2."""
    path = f"{CGROUPS}/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    return (files.text(path, links=True) or "").split()
