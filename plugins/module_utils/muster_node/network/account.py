"""Collect the account properties that sshd checks at login."""

from __future__ import annotations

import datetime as dt
import grp
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.network import sshd

if TYPE_CHECKING:
    import pwd


def account_of(entry: pwd.struct_passwd) -> sshd.SshdAccount:
    groups = [grp.getgrgid(gid).gr_name for gid in os.getgrouplist(entry.pw_name, entry.pw_gid) if _has_name(gid)]
    # The eighth field of shadow is the expiry date, in days since 1970. Directory service accounts have no line.
    fields: list[str] = []
    for line in Path("/etc/shadow").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(f"{entry.pw_name}:"):
            fields = line.split(":")
    today = (dt.datetime.now(dt.timezone.utc) - dt.datetime.fromtimestamp(0, dt.timezone.utc)).days
    last = fields[7] if len(fields) > 7 else ""
    return sshd.SshdAccount(
        name=entry.pw_name,
        home=entry.pw_dir,
        shell=entry.pw_shell or "/bin/sh",
        groups=tuple(groups),
        locked=bool(fields) and fields[1].startswith("!"),
        expired=last.isdigit() and int(last) < today,
        loose=loose_paths(entry),
    )


def _has_name(gid: int) -> bool:
    try:
        grp.getgrgid(gid)
    except KeyError:
        return False
    return True


def loose_paths(entry: pwd.struct_passwd) -> dict[str, str]:
    """Return paths that sshd would not trust. The sshd of Debian and Ubuntu accepts files that are writable by the
    user's group if the group has no other member."""
    found: dict[str, str] = {}
    home = Path(entry.pw_dir)
    for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
        try:
            status = path.stat()
        except OSError:
            continue
        others = status.st_mode & stat.S_IWOTH
        if status.st_mode & stat.S_IWGRP and not (
            status.st_gid == entry.pw_gid and _has_name(status.st_gid) and _alone(entry, status.st_gid)
        ):
            others |= stat.S_IWGRP
        if others:
            found[str(path)] = f"chmod go-w {path}"
        elif status.st_uid not in (0, entry.pw_uid):
            found[str(path)] = f"chown {entry.pw_name} {path}"
    return found


def _alone(entry: pwd.struct_passwd, gid: int) -> bool:
    return not set(grp.getgrgid(gid).gr_mem) - {entry.pw_name}
