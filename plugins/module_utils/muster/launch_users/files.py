"""The files for launch users on a node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .model import GROUP, NO_LIMIT, SEATS, LaunchUser, LaunchUsersRecord, Recorded
from .request import numbers, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TMPFILES = "/etc/tmpfiles.d/muster-launch.conf"
PROFILE = "/etc/profile.d/muster-launch.sh"
LIMITS = "/etc/security/limits.d/91-muster-launch.conf"
USER_CONF = "/etc/systemd/user.conf.d/90-muster.conf"
MANAGER = "/etc/systemd/system/user@{}.service.d/90-muster.conf"
SLICE = "/etc/systemd/system/user-{}.slice.d/90-muster.conf"
FOLDER = "/usr/local/lib/muster/bin"
LINK = f"{FOLDER}/torchrun"
HEAD = "# Written by Muster (role launch_users), which overwrites changes in this file.\n"


def seats_of(gpus: int) -> list[str]:
    """Return the names of all GPU and CPU slots of a node."""
    return ["cpu", *(f"gpu-{number}" for number in range(gpus))]


def tmpfiles_text(seats: Iterable[str]) -> str:
    """Return a tmpfiles.d file that creates the slots at boot, because launch users cannot create slots themselves."""
    lines = [
        "d /run/muster 0755 root root -",
        f"d {SEATS} 0750 root {GROUP} -",
        *(f"f {SEATS}/{seat} 0644 root root -" for seat in seats),
    ]
    return HEAD + "".join(f"{line}\n" for line in lines)


def profile_text() -> str:
    """Return a shell profile that adds only torchrun to PATH.

    Other programs of the environment, above all python, must not shadow those of the system.
    """
    return HEAD + (f'case " $(id -nG 2>/dev/null) " in\n  *" {GROUP} "*) PATH="$PATH:{FOLDER}" ;;\nesac\n')


def limits_text(users: Iterable[LaunchUser]) -> str:
    """Return the limits for logins and user managers.

    PAM applies them after systemd's limits (systemd-user, pam_limits).
    """
    lines = []
    for user in users:
        memlock = size(user.memlock)
        soft, hard = numbers(user.nofile)
        locked = "unlimited" if memlock == NO_LIMIT else f"{memlock / 1024:.0f}"
        lines += [f"{user.name} {kind} memlock {locked}" for kind in ("soft", "hard")]
        lines += [f"{user.name} soft nofile {soft:.0f}", f"{user.name} hard nofile {hard:.0f}"]
    return HEAD + "".join(f"{line}\n" for line in lines)


def user_conf_text(users: Iterable[LaunchUser]) -> str:
    """Return the limits that user managers set for their units.

    The default limit is 1024 open files, whatever the limit of the manager itself. The file applies to all user
    managers (systemd-user.conf).
    """
    limits = [numbers(user.nofile) for user in users]
    soft, hard = (max(one[place] for one in limits) for place in (0, 1))
    return HEAD + f"[Manager]\nDefaultLimitNOFILE={soft:.0f}:{hard:.0f}\n"


def manager_text(user: LaunchUser) -> str:
    return HEAD + f"[Service]\nLimitMEMLOCK={user.memlock}\nLimitNOFILE={user.nofile}\n"


def slice_text(user: LaunchUser) -> str:
    return HEAD + f"[Slice]\nTasksMax={user.tasks}\n"


def of_users(users: Mapping[int, LaunchUser]) -> dict[str, str]:
    """Return the files of each account, by UID."""
    texts = {}
    for uid, user in users.items():
        texts[MANAGER.format(uid)] = manager_text(user)
        texts[SLICE.format(uid)] = slice_text(user)
    return texts


# ---------------------------------------------------------------- the record


def record_text(record: LaunchUsersRecord) -> str:
    users = {
        name: {
            "uid": entry.uid,
            "member": entry.member,
            "linger": entry.linger,
            "memlock": entry.user.memlock,
            "nofile": entry.user.nofile,
            "tasks": entry.user.tasks,
        }
        for name, entry in sorted(record.users.items())
    }
    return json.dumps({"group": record.group, "users": users}, indent=1) + "\n"


def record_of(text: str) -> LaunchUsersRecord:
    """Return the record in a text written by record_text. Raises ValueError for any other text."""
    try:
        given: dict[str, Any] = json.loads(text) if text else {}
        users = {
            name: Recorded(
                LaunchUser(name, entry["memlock"], entry["nofile"], entry["tasks"]),
                int(entry["uid"]),
                bool(entry["member"]),
                bool(entry["linger"]),
            )
            for name, entry in given.get("users", {}).items()
        }
        return LaunchUsersRecord(users, bool(given.get("group")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("Muster's record cannot be read") from error
