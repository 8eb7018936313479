"""What must change on a node for it to be as described: pure; muster_node/baseline looks, and this decides.

State is always the live one: a file that is right says nothing about the daemon that read it before, nor /etc/sysctl.d
about the kernel. So a run that was cut off between a file and its consequence is finished by running again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .model import AccountState, BaselineAccount, BaselineFile, BaselinePlan, BaselineRequest, BaselineState, may
from .packages import plan_packages
from .sysctl import plan_sysctl, sysctl_text
from .units import plan_units

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE = re.compile(r"\s+\(([^):]*)[^)]*\)\s*(.*)")


def make_plan(request: BaselineRequest, seen: BaselineState, *, verifies: bool = False) -> BaselinePlan:
    plan = BaselinePlan()
    plan_packages(plan, request, seen)
    _files(plan, request, seen, verifies=verifies)
    plan_sysctl(plan, request, seen)
    _manager(plan, request, seen)
    plan_units(plan, request, seen)
    _user(plan, request, seen)
    return plan


def _files(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState, *, verifies: bool) -> None:
    files = list(request.files)
    if request.sysctl_file and request.sysctl:
        files.append(BaselineFile(request.sysctl_file, sysctl_text(request.sysctl, seen.sysctl), by_effect=True))
    for file in files:
        if verifies and file.by_effect:
            continue
        if not may(plan, seen, file.needs, file.path):
            continue
        there = seen.files.get(file.path)
        if there is None:
            sentence = f"{file.path} is missing"
        elif there.content != file.content:
            sentence = f"{file.path} has other content"
        elif (there.mode, there.owner, there.group) != (file.mode, file.owner, file.group):
            was, wanted = (f"{each.owner}:{each.group} {each.mode}" for each in (there, file))
            plan.files.append(file)
            plan.differs(f"{file.path} is {was} and not {wanted}", file.path, was, wanted)
            continue
        else:
            continue
        plan.files.append(file)
        plan.differences.append(sentence)


def _manager(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    for name, wanted in request.manager.items():
        live = seen.manager.get(name)
        if live is None:
            plan.skip(name, "this systemd does not have it")
        elif live != wanted:
            plan.reexec = True
            plan.differs(f"{name} of systemd is {live} and not {wanted}", f"systemd {name}", live, wanted)


def _user(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    user = request.user
    if user is None:
        return
    account = seen.account
    if account is not None:
        plan.problems.extend(_refusals(user, account))
        return
    for kind, wanted in (("uid", user.uid), ("gid", user.gid)):
        owner = seen.owners.get(f"{kind} {wanted}", "")
        if wanted and owner and owner != user.name:
            plan.problems.append(f"the {kind} {wanted} of {user.name} belongs to {owner} already: choose another one")
    plan.user = user
    ids = "".join(f", {kind} {wanted}" for kind, wanted in (("uid", user.uid), ("gid", user.gid)) if wanted)
    plan.differs(f"it has no user {user.name}", f"user {user.name}", "none", f"shell {user.shell}{ids}")


def _is_everything(line: str) -> bool:
    """Whether a line of `sudo -l` lets somebody be root with any command: `    (ALL : ALL) NOPASSWD: ALL`."""
    found = _RULE.fullmatch(line)
    if found is None or not {"ALL", "root", "#0"} & set(re.split(r"[,\s]+", found[1])):
        return False
    return any(re.sub(r"^([A-Z_]+:\s*)*", "", command.strip()) == "ALL" for command in found[2].split(","))


def _refusals(user: BaselineAccount, account: AccountState) -> Iterable[str]:
    """An account that exists is the site's own: it is judged, never altered."""
    admin = [group for group in account.groups if group in user.never_in]
    sudo = any(map(_is_everything, account.sudo.splitlines())) if user.never_in else False
    if account.uid == 0 or admin or sudo:
        groups = f"in {', '.join(admin)}" if admin else "allowed every command by a line of sudoers"
        what = "root" if account.uid == 0 else groups
        yield (f"{user.name} is {what}, and training code must not have such rights: set cluster_user to another name")
    if user.uid not in ("", str(account.uid)):
        yield f"{user.name} has the uid {account.uid}, and node_baseline_user_uid is {user.uid}"
    if user.gid not in ("", str(account.gid)):
        yield f"{user.name} has the gid {account.gid}, and node_baseline_user_gid is {user.gid}"
