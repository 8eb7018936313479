"""The type of a launch: an administrator launch, which root starts as the training user, or a user launch without root.

The type depends on the account that logs in to the nodes (launch_as). It is the same on all nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.words import few
from .planned import SYSTEM, USER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..verdict.finding import Finding
    from .messages import Facts, Identity
    from .plan import LaunchRequest
    from .planned import LaunchPlan, PlannedNode

AUTO, SELF, CLUSTER_USER = "auto", "self", "cluster_user"  # launch_as
GROUP = "muster-launch"
# Users have another inventory than administrators, so no complete command can be shown.
USERS = "site.yml --tags launch_users"
ADMINISTRATOR = f"An administrator must add the account to launch_users and run {USERS}"

WHO = Check(
    "launch.who",
    seen="stand-in",
    reads=f"the login account on each participating node, and whether it is in the group {GROUP} on that node",
    fires="the login accounts of the nodes differ, or the launch belongs to another user (fail)",
    fix=ADMINISTRATOR,
)
OWN = Check(
    "launch.own",
    seen="stand-in",
    reads="for a user launch: the user's systemd instance and its lingering, the user's folder, and the lock files of "
    "GPU and CPU slots",
    fires="the instance, the folder or a lock file is missing, or lingering is off (fail)",
    fix=ADMINISTRATOR,
)


class Whose(NamedTuple):
    """The type of a launch.

    manager: system or user. user: the account of a user launch; "" for a launch as cluster_user.
    """

    manager: str = SYSTEM
    user: str = ""

    @property
    def own(self) -> bool:
        return self.manager == USER


def whose(requested: str, seen: Mapping[str, Identity]) -> tuple[Whose, list[Finding]]:
    """Return the type of the launch, and what blocks the launch.

    requested: value of launch_as. seen: login account of each node.
    """
    able = [name for name, one in seen.items() if one["launch_user"]]
    if requested == CLUSTER_USER or not seen or (requested == AUTO and not able):
        return Whose(), []
    first = seen[able[0] if able else next(iter(seen))]["name"]
    found = [finding for name, one in seen.items() if (finding := against(name, one, first, able))]
    return Whose(USER, first), found


def against(node: str, one: Identity, first: str, able: list[str]) -> Finding | None:
    name = one["name"] or f"uid {one['uid']}"
    if one["uid"] == 0:
        text = "the login account is root, but a user launch requires an ordinary account"
        return WHO.fail(node, text, fix="Log in as yourself (ansible_user), or set launch_as to cluster_user")
    if not one["launch_user"]:
        there = f", but is on {few(able)}" if able else ""
        return WHO.fail(node, f"{name} is not in the group {GROUP}{there}")
    if not one["name"]:
        return WHO.fail(node, f"{name} has no account name that can be used as a folder name", fix="Rename the account")
    if one["name"] != first:
        text = f"the login account is {name}, but {first} on {few(able[:1])}"
        return WHO.fail(node, text, fix="Log in to all nodes as the same user (ansible_user)")
    return None


def others(plan: LaunchPlan, seen: Mapping[str, Identity]) -> set[str]:
    """Return the nodes of a user launch on which the login account is a different one."""
    return {name for name, one in seen.items() if one["name"] != plan.user} if plan.is_own else set()


def not_theirs(
    plan: LaunchPlan, seen: Mapping[str, Identity], in_their_name: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return what prevents following or stopping a user launch. Only its user can do this, or root acting as that user.

    in_their_name: for each node, why root cannot act as the user; "" if root can. None means that this was not tried
    yet.
    """
    tried = {} if in_their_name is None else in_their_name
    user = plan.user
    found = []
    for name in sorted(others(plan, seen)):
        text = f"launch {plan.launch_id} is a user launch of {user}, but the login account is {seen[name]['name']}"
        if seen[name]["launch_user"]:
            fix = f"Log in as {user} (ansible_user), or as an administrator who is not a launch user"
            found.append(WHO.fail(name, text, fix=fix))
        elif tried.get(name):
            fix = f"Log in as {user} (ansible_user), or as an account that can act as {user} through sudo"
            found.append(WHO.fail(name, f"{text}, which cannot act as {user}: {tried[name]}", fix=fix))
    return found


def as_own(request: LaunchRequest, user: str) -> LaunchRequest:
    """Return the request as a user launch, which runs as that user and in that user's folders."""
    home = f"{request.cluster.users_root}/{user}"
    cluster = replace(request.cluster, user=user, run_root=f"{home}/launches", work_root=f"{home}/work")
    return replace(request, cluster=cluster, manager=USER)


def own(entry: PlannedNode, facts: Facts, seats: Iterable[str], users_root: str) -> list[Finding]:
    """Return what blocks a user launch on this node. users_root: the folder of the user's launches on the node."""
    seen, node = facts["own"], entry.node
    if seen is None:
        return []
    missing = [seat for seat in seats if seat not in seen["seats"]]
    found = []
    if seen["manager_why"]:
        found.append(OWN.fail(node, f"the user's systemd instance does not respond: {seen['manager_why']}"))
    elif not seen["lingers"]:
        found.append(OWN.fail(node, "the user's systemd instance ends when the user logs out (lingering is off)"))
    elif seen["group_is_new"]:
        text = f"the user's systemd instance was started before the account joined the group {GROUP}"
        fix = "End all sessions and units of the user, or reboot the node. List them with"
        found.append(OWN.fail(node, text, fix, shell("systemctl status user@{uid}.service", uid=facts["uid"])))
    if missing:
        found.append(OWN.fail(node, f"cannot reserve {few(missing)}: the user cannot open the lock file"))
    if facts["disk"]["path"] != users_root and not facts["disk"]["path"].startswith(f"{users_root}/"):
        found.append(OWN.fail(node, f"the folder {users_root} does not exist"))
    return found


def notes(seen: Mapping[str, Facts]) -> list[str]:
    """Return sentences about limits that the nodes cannot enforce for a user launch."""
    found = []
    for what, sentence in (
        ("memory", "memory limits are not enforced for user launches (requires cgroup v2)"),
        ("pids", "limits on the number of processes are not enforced for user launches (requires cgroup v2)"),
    ):
        where = [name for name, facts in seen.items() if facts["own"] and what in facts["own"]["not_held"]]
        found += [f"{few(where)}: {sentence}"] if where else []
    locked: dict[int, list[str]] = {}
    for name, facts in seen.items():
        if facts["own"] and (most := facts["own"]["limits"].get("memlock")) is not None:
            locked.setdefault(most, []).append(name)
    found += [
        f"{few(names)}: ranks can lock only {most // 1024} KiB of memory, too little for RDMA; an administrator must"
        f" increase launch_users_memlock and run {USERS}"
        for most, names in locked.items()
    ]
    uids: dict[int, list[str]] = {}
    for name, facts in seen.items():
        uids.setdefault(facts["uid"], []).append(name)
    if len(uids) > 1 and any(facts["own"] for facts in seen.values()):
        each = "; ".join(f"{uid} on {few(names)}" for uid, names in uids.items())
        found.append(f"the account has different uids on the nodes, so shared files get different owners: {each}")
    return found
