"""Inspect and apply the setup of a node for launch users, and revert it for former launch users.

Each change is recorded before it is made, so that the next run can complete or revert the changes of an interrupted
run.
"""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.launch_users import files as domain
from ansible.module_utils.muster.launch_users.model import GROUP, RECORD, SEATS, LaunchUsersRequest
from ansible.module_utils.muster.launch_users.plan import make_plan
from ansible.module_utils.muster.launch_users.request import faults, limit_faults, users_of
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools import files, trust
from ..tools.result import RefusedError, diff, lines, refuse
from ..tools.run import run
from .look import LINGER, SYSTEMCTL_SECONDS, manager_pid, observe, owner_of, record

if TYPE_CHECKING:
    from ansible.module_utils.muster.launch_users.model import LaunchUsersPlan

FIX = f"To change it, run {playbook('site.yml', tags='launch_users', launch_users_mode='manage')}"
MANAGER_SECONDS = 30.0  # for the start of a user manager, which takes less than one second


def request_of(params: dict[str, Any]) -> LaunchUsersRequest:
    limits = {key: params[key] for key in ("memlock", "nofile", "tasks")}
    wrong = [*faults(params["users"], ""), *limit_faults(limits)]
    refuse([f"{what}: {fix}" for what, fix in wrong])
    return LaunchUsersRequest(users_of(params["users"], limits), params["root"], params["torchrun"], params["gpus"])


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Apply the changes, unless in check mode. params: options of library/launch_users.py."""
    request = request_of(params)
    try:
        noted = record()
    except ValueError as problem:
        raise RefusedError(f"{RECORD}: {problem}", "Remove it, and revert the setup of its users manually") from problem
    if not request.users and not noted.users and not noted.group:
        return {"changed": False, "differences": [], "notes": []}
    plan = make_plan(request, observe(request, noted))
    refuse(plan.problems, plan.differences if params["mode"] == "verify" else (), FIX)
    shown = [diff("launch users", lines(plan.lines_before), lines(plan.lines_after))]
    shown += [diff(path, files.text(path) or "", text or "") for path, text in plan.files.items()]
    if plan.needed and not check:
        act(plan, request)
    folders = [f"{request.root}/{name}" for name in (*plan.folders, *plan.empty_folders)]
    changes = {
        "file": [*folders, *([] if plan.link is None else [domain.LINK]), RECORD],
        "account": [
            *([GROUP] if plan.make_group or plan.drop_group else []),
            *(name for names in (plan.join, plan.linger, plan.leave, plan.end_linger) for name in names),
        ],
        "unit": [f"user manager of {name}" for name in plan.restart],
    }
    said = {"changed": plan.needed, "differences": plan.differences, "changes": changes}
    return {**said, "diff": shown, "notes": plan.notes}


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
        raise RefusedError(f"{' '.join(argv)} failed: {done.said or done.why}")


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
        return False  # it contains files of others
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
            raise RefusedError(
                f"the user manager of {name} is not running", f"Check its log: sudo journalctl --unit {unit}"
            )
        time.sleep(0.1)


def manager_runs(name: str) -> bool:
    uid = pwd.getpwnam(name).pw_uid
    return manager_pid(uid) != 0 and Path(f"/run/user/{uid}/systemd/private").exists()


def undo(plan: LaunchUsersPlan, request: LaunchUsersRequest) -> None:
    for name in plan.end_linger:
        # loginctl rejects an account that no longer exists.
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
