"""Inspect the setup for launch users without changing it."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.launch_users import files as domain
from ansible.module_utils.muster.launch_users.model import (
    GROUP,
    RECORD,
    SEATS,
    LaunchUsersRecord,
    LaunchUsersState,
    SeenUser,
    UserManager,
)

from ..tools import files, process, trust
from ..tools.as_user import SilentError, as_user
from ..tools.run import names, run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible.module_utils.muster.launch_users.model import LaunchUsersRequest, Limit

LINGER = "/var/lib/systemd/linger"
SYSTEMCTL_SECONDS = 30
TORCHRUN_SECONDS = 5.0
MOST_ANSWER = 1000  # bytes
MOST_BUSY = 3  # processes of an account that are listed
# Network file systems: a launch blocks when they fail, and root may not be allowed to write.
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "glusterfs")
LIMITS = {
    "memlock": re.compile(r"^Max locked memory +(\S+) +(\S+)", re.MULTILINE),
    "nofile": re.compile(r"^Max open files +(\S+) +(\S+)", re.MULTILINE),
}


def record() -> LaunchUsersRecord:
    """Return Muster's record of this setup. Raises ValueError if the record cannot be read."""
    return domain.record_of(files.text(RECORD) or "")


def observe(request: LaunchUsersRequest, noted: LaunchUsersRecord) -> LaunchUsersState:
    everybody = dict.fromkeys([*(user.name for user in request.users), *noted.users])
    group = group_of()
    users = {name: account(name, request, group) for name in everybody}
    uids = {one.uid for one in users.values() if one.uid is not None} | {one.uid for one in noted.users.values()}
    paths = [domain.TMPFILES, domain.PROFILE, domain.LIMITS, domain.USER_CONF]
    paths += [pattern.format(uid) for uid in sorted(uids) for pattern in (domain.MANAGER, domain.SLICE)]
    texts = {path: text for path in paths if (text := files.text(path)) is not None}
    return LaunchUsersState(
        users=users,
        record=noted,
        group=group is not None,
        files=texts,
        changed={path: Path(path).stat().st_ctime for path in texts},
        link=link(),
        seats=seats(),
        gpus=len([name for name in names("/dev") if re.fullmatch(r"nvidia\d+", name)]),
        unsafe=unsafe(request.root),
        capabilities=capabilities(),
    )


def group_of() -> grp.struct_group | None:
    try:
        return grp.getgrnam(GROUP)
    except KeyError:
        return None


def account(name: str, request: LaunchUsersRequest, group: grp.struct_group | None) -> SeenUser:
    linger = Path(f"{LINGER}/{name}").exists()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return SeenUser(linger=linger, folder_owner=owner_of(f"{request.root}/{name}"))
    main = manager_pid(entry.pw_uid)
    running = [pid for pid in process.ids() if process.user_id(pid) == entry.pw_uid]
    return SeenUser(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        member=group is not None and group.gr_gid in os.getgrouplist(name, entry.pw_gid),
        linger=linger,
        folder_owner=owner_of(f"{request.root}/{name}"),
        manager=manager(main, entry, group) if main else None,
        launches=launches(entry.pw_uid, running),
        busy=[process.shown(pid) for pid in running if not of_manager(pid, main)][:MOST_BUSY],
        torchrun=may_run(entry, request.torchrun),
    )


def owner_of(path: str) -> str:
    """Return the owner of a folder; "" if the folder does not exist."""
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return files.user_name(seen.st_uid) if stat.S_ISDIR(seen.st_mode) else "nobody (not a folder)"


def manager_pid(uid: int) -> int:
    shown = run("systemctl", "show", f"user@{uid}.service", "--property=MainPID", seconds=SYSTEMCTL_SECONDS)
    return int(shown.text.strip().partition("=")[2] or 0)


def of_manager(pid: int, main: int) -> bool:
    """Return whether a process is the user manager (main) or the manager's PAM helper."""
    if pid == main:
        return True
    seen = process.status(pid)
    return main != 0 and seen is not None and seen.parent == main and process.read(pid, "comm").strip() == "(sd-pam)"


def manager(pid: int, user: pwd.struct_passwd, group: grp.struct_group | None) -> UserManager:
    groups = re.search(r"^Groups:\t(.*)$", process.read(pid, "status"), re.MULTILINE)
    return UserManager(
        started=time.time() - (process.age(pid) or 0.0),
        in_group=group is not None and groups is not None and str(group.gr_gid) in groups[1].split(),
        memlock=limit(pid, "memlock"),
        nofile=limit(pid, "nofile"),
        unit_nofile=unit_nofile(user),
    )


def unit_nofile(user: pwd.struct_passwd) -> float:
    """Return the limit on open files that the manager applies to its units. The user controls the manager, so the value
    is untrusted."""
    env = {"PATH": os.defpath, "XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}"}
    argv = ("systemctl", "--user", "show", "--property=DefaultLimitNOFILESoft", "--value")
    said = run(*argv, env=env, user=user, most=MOST_ANSWER).text.strip()
    return float(said) if said.isdecimal() else 0.0


def limit(pid: int, name: str) -> Limit:
    found = LIMITS[name].search(process.read(pid, "limits"))
    soft, hard = (float("inf") if one == "unlimited" else float(one) for one in found.groups()) if found else (0.0, 0.0)
    return soft, hard


def launches(uid: int, running: Iterable[int]) -> list[str]:
    """Return the running launches of the account's own systemd user manager. Units with launch names in other managers
    are ignored."""
    found = {launch.id for pid in running if (launch := process.launch_at(pid)) and launch.uid == uid}
    return sorted(found)


def may_run(user: pwd.struct_passwd, torchrun: str) -> bool | None:
    """Test as the account whether it can run torchrun. Return None if torchrun does not exist yet."""
    if not Path(torchrun).exists():
        return None
    try:
        return bool(as_user(user, lambda: os.access(torchrun, os.X_OK), seconds=TORCHRUN_SECONDS))
    except SilentError:
        return False


def link() -> str:
    with suppress(OSError):
        return str(Path(domain.LINK).readlink())
    return ""


def seats() -> dict[str, str]:
    """Return the owner and mode of the GPU and CPU slot files and of their folder."""
    found = {}
    with suppress(OSError), files.folder(SEATS) as handle:
        found[""] = kept(os.fstat(handle))
        for name in names(SEATS):
            found[name] = kept(os.stat(name, dir_fd=handle, follow_symlinks=False))
    return found


def kept(seen: os.stat_result) -> str:
    try:
        group = grp.getgrgid(seen.st_gid).gr_name
    except KeyError:
        group = str(seen.st_gid)
    return f"{files.user_name(seen.st_uid)}:{group} {stat.S_IMODE(seen.st_mode):04o}"


def unsafe(root: str) -> str:
    """Return the reason why users' folders cannot be created in a folder; "" if they can."""
    foreign = trust.foreign_writer(root)
    if foreign:
        return foreign
    place = os.path.realpath(root)
    mounts = [line.split() for line in (files.text("/proc/self/mountinfo") or "").splitlines()]
    found = [
        (len(words[4]), words[words.index("-") + 1], words[4])
        for words in mounts
        if place == words[4] or place.startswith(words[4].rstrip("/") + "/")
    ]
    # Of several mounts on one path, the last is visible.
    _, kind, point = max(reversed(found), key=lambda one: one[0], default=(0, "", ""))
    return f"{point} is a network file system ({kind})" if kind in REMOTE else ""


def capabilities() -> int:
    found = re.search(r"^CapEff:\t([0-9a-f]+)$", process.read(os.getpid(), "status"), re.MULTILINE)
    return int(found[1], 16) if found else 0
