"""Plan the setup of a node for launch users, and how to revert the setup for users that were removed from the
inventory. Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import shell
from . import files
from .model import (
    CAP_SYS_RESOURCE,
    GROUP,
    RECORD,
    SEATS_MODE,
    LaunchUser,
    LaunchUsersPlan,
    LaunchUsersRecord,
    LaunchUsersRequest,
    LaunchUsersState,
    Recorded,
    SeenUser,
)
from .request import numbers, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .model import Limit, UserManager


def make_plan(request: LaunchUsersRequest, seen: LaunchUsersState) -> LaunchUsersPlan:
    plan = LaunchUsersPlan()
    _problems(plan, request, seen)
    if plan.problems:
        return plan
    users = [*request.users, *_kept(plan, request, seen)]
    leaving = [entry for name, entry in seen.record.users.items() if name not in {user.name for user in users}]
    plan.after = _record(users, seen)
    noted = {entry.user.name: entry for entry in leaving}
    plan.before = LaunchUsersRecord({**noted, **plan.after.users}, plan.after.group or seen.record.group)
    if users and not seen.group:
        plan.make_group = True
        plan.differs(f"group {GROUP} does not exist", f"group {GROUP}", "none", "present")
    for user in users:
        _join(plan, user, seen.users[user.name])
    _files(plan, request, seen, users, leaving)
    _seats(plan, request, seen, users)
    for user in users:
        _account(plan, request, seen, user)
    for entry in leaving:
        _leave(plan, request, entry, seen.users.get(entry.user.name, SeenUser()))
    if not users and seen.record.users:
        plan.drop_group = seen.record.group and seen.group
        plan.close_seats = True
    if plan.after != seen.record:
        plan.differences.append(f"{RECORD} does not list the launch users")
    return plan


def _problems(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState) -> None:
    if request.users and seen.unsafe:
        plan.problems.append(
            f"{request.root} cannot be used for launch users: {seen.unsafe}. Set cluster_users_root to a folder"
            " of root on a local disk of the node"
        )
    for user in request.users:
        there = seen.users[user.name]
        if there.uid is None:
            plan.problems.append(
                f"account {user.name} does not exist: create it with your site's tools, or remove it from launch_users"
            )
        elif there.uid == 0:
            plan.problems.append(f"{user.name} has uid 0 (root): remove it from launch_users")
        elif there.folder_owner not in ("", user.name):
            folder = f"{request.root}/{user.name}"
            plan.problems.append(
                f"{folder} belongs to {there.folder_owner} (perhaps a deleted account): move it, or run"
                f" {shell('sudo chown -R {name}: {folder}', name=user.name, folder=folder)}"
            )
        elif there.torchrun is False:
            plan.problems.append(
                f"{user.name} cannot run {request.torchrun}: make its folders accessible to all users, or set"
                " cluster_torchrun"
            )


def _kept(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState) -> Iterable[LaunchUser]:
    """Yield the users that are no longer listed but still have a running launch."""
    requested = {user.name for user in request.users}
    for name, entry in seen.record.users.items():
        launches = seen.users.get(name, SeenUser()).launches
        if name not in requested and launches:
            plan.notes.append(
                f"{name} is no longer in launch_users, but its launch {', '.join(launches)} is running: the setup"
                " of the account is removed by the first run after the launch has finished"
            )
            yield entry.user


def _record(users: Iterable[LaunchUser], seen: LaunchUsersState) -> LaunchUsersRecord:
    found = {}
    for user in users:
        there, ours = seen.users[user.name], seen.record.users.get(user.name)
        found[user.name] = Recorded(
            user,
            there.uid or 0,
            not there.member or (ours is not None and ours.member),
            not there.linger or (ours is not None and ours.linger),
        )
    return LaunchUsersRecord(found, bool(found) and (seen.record.group or not seen.group))


def _join(plan: LaunchUsersPlan, user: LaunchUser, there: SeenUser) -> None:
    if not there.member:
        plan.join.append(user.name)
        plan.differs(f"{user.name} is not in the group {GROUP}", f"{user.name} in {GROUP}", "no", "yes")


def _files(
    plan: LaunchUsersPlan,
    request: LaunchUsersRequest,
    seen: LaunchUsersState,
    users: list[LaunchUser],
    leaving: Iterable[Recorded],
) -> None:
    texts = files.of_users({seen.users[user.name].uid or 0: user for user in users})
    obsolete = [
        pattern.format(entry.uid)
        for entry in (*leaving, *seen.record.users.values())
        for pattern in (files.MANAGER, files.SLICE)
    ]
    shared = {
        files.TMPFILES: files.tmpfiles_text(files.seats_of(max(request.gpus, seen.gpus))),
        files.PROFILE: files.profile_text(),
        files.USER_CONF: files.user_conf_text(users) if users else "",
        files.LIMITS: files.limits_text(users),
    }
    if users and not seen.capabilities >> CAP_SYS_RESOURCE & 1:
        # If root itself may not raise limits, PAM logs an error at every login, and some versions reject the login.
        del shared[files.LIMITS]
        plan.notes.append(
            f"limits cannot be raised on this machine (CAP_SYS_RESOURCE is missing): {files.LIMITS} is not written"
        )
    if users:
        texts.update(shared)
    else:
        obsolete += shared
    for path, text in texts.items():
        if seen.files.get(path) != text:
            plan.files[path] = text
            plan.differences.append(f"{path} {'has other content' if path in seen.files else 'is missing'}")
    for path in dict.fromkeys(obsolete):
        if path not in texts and path in seen.files:
            plan.files[path] = None
            plan.differences.append(f"{path} is no longer needed")
    plan.reload = any(path.startswith("/etc/systemd/") for path in plan.files)
    wanted = request.torchrun if users else ""
    if seen.link != wanted and (users or seen.record.users):
        plan.link = wanted
        plan.differs(
            f"{files.LINK} points to {seen.link or 'nothing'}", files.LINK, seen.link or "none", wanted or "none"
        )


def _seats(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState, users: list[LaunchUser]) -> None:
    if not users:
        return
    wanted = {"": f"root:{GROUP} {SEATS_MODE:04o}"}
    wanted.update(dict.fromkeys(files.seats_of(max(request.gpus, seen.gpus)), "root:root 0644"))
    wrong = [name for name, kept in wanted.items() if seen.seats.get(name) != kept]
    if wrong:
        plan.seats = True
        names = ", ".join(name or "their folder" for name in wrong)
        plan.differs(f"slots that launch users cannot reserve: {names}", "slots", f"not {names}", "open to the group")


def _account(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState, user: LaunchUser) -> None:
    there = seen.users[user.name]
    folder = f"{request.root}/{user.name}"
    if not there.folder_owner:
        plan.folders.append(user.name)
        plan.differs(f"{folder} is missing", folder, "none", f"accessible to {user.name} only")
    if not there.linger:
        plan.linger.append(user.name)
        plan.differs(f"units of {user.name} end at logout (lingering is off)", f"linger of {user.name}", "no", "yes")
    judge_manager(plan, seen, user)


def _leave(plan: LaunchUsersPlan, request: LaunchUsersRequest, entry: Recorded, there: SeenUser) -> None:
    name = entry.user.name
    plan.differs(f"{name} can launch, but is no longer in launch_users", f"{name} may launch", "yes", "no")
    if entry.member and there.member:
        plan.leave.append(name)
    if entry.linger and there.linger:
        plan.end_linger.append(name)
    if there.folder_owner:
        plan.empty_folders.append(name)
        plan.notes.append(f"the files of {name} in {request.root}/{name} are kept")


def judge_manager(plan: LaunchUsersPlan, seen: LaunchUsersState, user: LaunchUser) -> None:
    """Plan a restart of the user manager if the restart helps and disturbs no process; otherwise add a note."""
    there = seen.users[user.name]
    unit = f"user@{there.uid}.service"
    if there.manager is None:
        if there.linger:
            plan.restart.append(user.name)
            plan.differs(f"the user manager of {user.name} is not running", unit, "stopped", "running")
        return
    lacks = list(lacking(user, there.manager))
    paths = (files.MANAGER.format(there.uid), files.LIMITS, files.USER_CONF)
    newer = [path for path in paths if path in plan.files or seen.changed.get(path, 0.0) > there.manager.started]
    curable = ([] if there.manager.in_group else [f"is not in the group {GROUP}"]) + (lacks if newer else [])
    if not curable:
        if lacks:
            plan.notes.append(f"the user manager of {user.name} {' and '.join(lacks)}: {_why(seen)}")
        return
    what = f"the user manager of {user.name} {' and '.join(curable)}"
    if there.busy:
        plan.notes.append(
            f"{what}, but is not restarted because {', '.join(there.busy)} of {user.name} is running: reboot the"
            f" node, or run {shell('sudo systemctl restart {unit}', unit=unit)}, which ends all the user's processes"
        )
        return
    plan.restart.append(user.name)
    plan.differs(what, unit, "; ".join(curable), "restarted")


def _why(seen: LaunchUsersState) -> str:
    if not seen.capabilities >> CAP_SYS_RESOURCE & 1:
        return "this machine cannot raise the limit (CAP_SYS_RESOURCE is missing)"
    return "another setting overrides the limit, such as a later file in /etc/security/limits.d"


def lacking(user: LaunchUser, manager: UserManager) -> Iterator[str]:
    """Yield the limits that are lower than requested, as continuations of a sentence."""
    memlock = size(user.memlock)
    if _less(manager.memlock, (memlock, memlock)):
        yield f"can lock only {_shown(manager.memlock)} bytes of memory instead of {_shown((memlock, memlock))}"
    if _less(manager.nofile, numbers(user.nofile)):
        yield f"can open only {_shown(manager.nofile)} files instead of {_shown(numbers(user.nofile))}"
    soft = min(numbers(user.nofile)[0], manager.nofile[1])
    if manager.unit_nofile < soft:
        yield f"limits its units to {manager.unit_nofile:.0f} open files instead of {soft:.0f}"


def _less(have: Limit, wanted: Limit) -> bool:
    return have[0] < wanted[0] or have[1] < wanted[1]


def _shown(limit: Limit) -> str:
    soft, hard = ("unlimited" if one == float("inf") else f"{one:.0f}" for one in limit)
    return soft if soft == hard else f"{soft} to {hard}"
