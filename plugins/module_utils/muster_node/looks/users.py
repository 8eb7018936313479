"""The training user's account, and the account with the first regular uid."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any

FIRST_UID = 1000


def look(user: str) -> dict[str, Any]:
    try:
        first = pwd.getpwuid(FIRST_UID).pw_name
    except KeyError:
        first = ""
    return {"training_user": account(user), "uid_1000": first}


def account(name: str) -> dict[str, Any] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return {
        "name": entry.pw_name,
        "uid": entry.pw_uid,
        "gid": entry.pw_gid,
        "shell": entry.pw_shell,
        "home": entry.pw_dir,
        "groups": sorted(group_name(gid) for gid in os.getgrouplist(entry.pw_name, entry.pw_gid)),
    }


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
