"""Making a node ready for people who launch as themselves, and undoing it for those who no longer may.

What is ours is noted before it is done: a run that was cut off is finished, or undone, by the next one.
"""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.launch_users import files as domain
from ansible.module_utils.muster.launch_users.model import GROUP, RECORD, SEATS

from ..tools import files, trust
from ..tools.result import TaskRefusedError
from ..tools.run import run
from .look import LINGER, SYSTEMCTL_SECONDS, manager_pid, owner_of

if TYPE_CHECKING:
    from ansible.module_utils.muster.launch_users.model import LaunchUsersPlan, LaunchUsersRequest

MANAGER_SECONDS = 30.0  # for a user manager to start; it takes less than one


def act(plan: LaunchUsersPlan, request: LaunchUsersRequest) -> None:
    note(domain.record_text(plan.before))
    if plan.make_group:
        must("groupadd", "--system", GROUP)
    for name in plan.join:
        must("gpasswd", "--add", name, GROUP)
    write(plan)
    if plan.seats:
        must("systemd-tmpfiles", "--create", domain.TMPFILES)
    for name in plan.folders:
        make_folder(request.root, name)
    for name in plan.linger:
        must("loginctl", "enable-linger", name)
    for name in plan.restart:
        must("systemctl", "restart", f"user@{pwd.getpwnam(name).pw_uid}.service")
    for name in (*plan.linger, *plan.restart):
        wait_for_manager(name)
    undo(plan, request)
    note(domain.record_text(plan.after) if plan.after.users else "")


def note(text: str) -> None:
    if not text:
        files.remove(RECORD)
        return
    trust.make_folder(str(Path(RECORD).parent))
    files.replace(RECORD, text.encode(), mode=0o644)


def must(*argv: str) -> None:
    done = run(*argv, seconds=SYSTEMCTL_SECONDS)
    if done.code != 0:
        raise TaskRefusedError(f"{' '.join(argv)} did not work: {done.said or done.why}")


def write(plan: LaunchUsersPlan) -> None:
    for path, text in plan.files.items():
        if text is not None:
            files.replace(path, text.encode(), mode=0o644, parents=True)
            continue
        files.remove(path)
        if path.startswith("/etc/systemd/"):
            remove_empty(str(Path(path).parent))
    if plan.link:
        trust.make_folder(domain.FOLDER)
        files.link(domain.LINK, plan.link)
    elif plan.link is not None:
        files.remove(domain.LINK)
        remove_empty(domain.FOLDER)
    if plan.reload:
        must("systemctl", "daemon-reload")


def remove_empty(path: str) -> bool:
    try:
        Path(path).rmdir()
    except OSError:
        return False  # what else is in it is not ours
    return True


def make_folder(root: str, name: str) -> None:
    trust.make_folder(root)
    entry = pwd.getpwnam(name)
    files.make_folder(f"{root}/{name}", mode=0o700, owner=(entry.pw_uid, entry.pw_gid))


def wait_for_manager(name: str) -> None:
    unit = f"user@{pwd.getpwnam(name).pw_uid}.service"
    deadline = time.monotonic() + MANAGER_SECONDS
    while not manager_runs(name):
        if time.monotonic() > deadline:
            raise TaskRefusedError(
                f"the user manager of {name} does not run", f"See what it says: sudo journalctl --unit {unit}"
            )
        time.sleep(0.1)


def manager_runs(name: str) -> bool:
    uid = pwd.getpwnam(name).pw_uid
    return manager_pid(uid) != 0 and Path(f"/run/user/{uid}/systemd/private").exists()


def undo(plan: LaunchUsersPlan, request: LaunchUsersRequest) -> None:
    for name in plan.end_linger:
        # loginctl does not know an account that was removed.
        if run("loginctl", "disable-linger", name, seconds=SYSTEMCTL_SECONDS).code != 0:
            files.remove(f"{LINGER}/{name}")
    for name in plan.leave:
        must("gpasswd", "--delete", name, GROUP)
    for name in plan.empty_folders:
        if owner_of(f"{request.root}/{name}"):
            remove_empty(f"{request.root}/{name}")
    if plan.close_seats and Path(SEATS).is_dir():
        with files.folder(SEATS, owner=0) as handle:
            os.fchown(handle, 0, 0)
            os.fchmod(handle, 0o700)
    if plan.drop_group:
        must("groupdel", GROUP)
