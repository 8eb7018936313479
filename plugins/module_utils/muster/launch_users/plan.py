"""What must change on a node for people to launch as themselves, and what is undone for others: pure."""

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
        plan.differs(f"there is no group {GROUP}", f"group {GROUP}", "none", "there")
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
        plan.differences.append(f"{RECORD} does not say who may launch")
    return plan


def _problems(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState) -> None:
    if request.users and seen.unsafe:
        plan.problems.append(
            f"{request.root} cannot hold the folders of launch users: {seen.unsafe}; set cluster_users_root to a folder"
            " on a disk of the node that is root's"
        )
    for user in request.users:
        there = seen.users[user.name]
        if there.uid is None:
            plan.problems.append(
                f"there is no account {user.name}: make it as your site makes accounts, or take it out of launch_users"
            )
        elif there.uid == 0:
            plan.problems.append(f"{user.name} is root by another name (uid 0): take it out of launch_users")
        elif there.folder_owner not in ("", user.name):
            folder = f"{request.root}/{user.name}"
            plan.problems.append(
                f"{folder} belongs to {there.folder_owner}, who was {user.name} before, perhaps: move it away, or type"
                f" {shell('sudo chown -R {name}: {folder}', name=user.name, folder=folder)}"
            )
        elif there.torchrun is False:
            plan.problems.append(
                f"{user.name} may not run {request.torchrun}: let others read and enter its folders, or set"
                " cluster_torchrun"
            )


def _kept(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState) -> Iterable[LaunchUser]:
    """Those who are not in the list any more, and whose launch runs."""
    requested = {user.name for user in request.users}
    for name, entry in seen.record.users.items():
        launches = seen.users.get(name, SeenUser()).launches
        if name not in requested and launches:
            plan.notes.append(
                f"{name} is not in launch_users any more, and its launch {', '.join(launches)} runs: all stays as it is"
                " until a run that finds it over"
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
        # Where root itself may not raise a limit, PAM logs an error at every login, and some versions refuse it.
        del shared[files.LIMITS]
        plan.notes.append(
            "this machine may not raise its limits above those it was started with (it lacks CAP_SYS_RESOURCE):"
            f" {files.LIMITS} is left out"
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
            plan.differences.append(f"{path} is for nobody any more")
    plan.reload = any(path.startswith("/etc/systemd/") for path in plan.files)
    wanted = request.torchrun if users else ""
    if seen.link != wanted and (users or seen.record.users):
        plan.link = wanted
        plan.differs(
            f"{files.LINK} leads to {seen.link or 'nothing'}", files.LINK, seen.link or "none", wanted or "none"
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
        plan.differs(f"seats that launch users cannot take: {names}", "seats", f"not so: {names}", "open to the group")


def _account(plan: LaunchUsersPlan, request: LaunchUsersRequest, seen: LaunchUsersState, user: LaunchUser) -> None:
    there = seen.users[user.name]
    folder = f"{request.root}/{user.name}"
    if not there.folder_owner:
        plan.folders.append(user.name)
        plan.differs(f"{folder} is missing", folder, "none", f"{user.name}'s alone")
    if not there.linger:
        plan.linger.append(user.name)
        plan.differs(f"units of {user.name} end when it logs out", f"linger of {user.name}", "no", "yes")
    judge_manager(plan, seen, user)


def _leave(plan: LaunchUsersPlan, request: LaunchUsersRequest, entry: Recorded, there: SeenUser) -> None:
    name = entry.user.name
    plan.differs(f"{name} may launch, and is not in launch_users any more", f"{name} may launch", "yes", "no")
    if entry.member and there.member:
        plan.leave.append(name)
    if entry.linger and there.linger:
        plan.end_linger.append(name)
    if there.folder_owner:
        plan.empty_folders.append(name)
        plan.notes.append(f"what {name} has in {request.root}/{name} is left to it")


def judge_manager(plan: LaunchUsersPlan, seen: LaunchUsersState, user: LaunchUser) -> None:
    """Have the manager start anew where that helps and harms nobody; say what stays otherwise."""
    there = seen.users[user.name]
    unit = f"user@{there.uid}.service"
    if there.manager is None:
        if there.linger:
            plan.restart.append(user.name)
            plan.differs(f"the user manager of {user.name} does not run", unit, "stopped", "runs")
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
            f"{what}, and is not started anew, because {', '.join(there.busy)} of {user.name} runs: that comes with the"
            f" next boot, or by {shell('sudo systemctl restart {unit}', unit=unit)}, which ends all that runs in it"
        )
        return
    plan.restart.append(user.name)
    plan.differs(what, unit, "; ".join(curable), "started anew")


def _why(seen: LaunchUsersState) -> str:
    if not seen.capabilities >> CAP_SYS_RESOURCE & 1:
        return "this machine may not raise it (it lacks CAP_SYS_RESOURCE)"
    return "something else on the node sets it, such as a later file in /etc/security/limits.d"


def lacking(user: LaunchUser, manager: UserManager) -> Iterator[str]:
    """What it has less of than requested, each continuing a sentence."""
    memlock = size(user.memlock)
    if _less(manager.memlock, (memlock, memlock)):
        yield f"may lock {_shown(manager.memlock)} bytes of memory of {_shown((memlock, memlock))}"
    if _less(manager.nofile, numbers(user.nofile)):
        yield f"may have {_shown(manager.nofile)} open files of {_shown(numbers(user.nofile))}"
    soft = min(numbers(user.nofile)[0], manager.nofile[1])
    if manager.unit_nofile < soft:
        yield f"gives its units {manager.unit_nofile:.0f} open files of {soft:.0f}"


def _less(have: Limit, wanted: Limit) -> bool:
    return have[0] < wanted[0] or have[1] < wanted[1]


def _shown(limit: Limit) -> str:
    soft, hard = ("unlimited" if one == float("inf") else f"{one:.0f}" for one in limit)
    return soft if soft == hard else f"{soft} to {hard}"
