"""Whether the user manager of a launch user has what its units need: the group and the limits, from its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import shell
from . import files
from .model import CAP_SYS_RESOURCE, GROUP
from .request import numbers, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import LaunchUser, LaunchUsersPlan, LaunchUsersState, Limit, UserManager


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
