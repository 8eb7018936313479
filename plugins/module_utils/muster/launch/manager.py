"""Whose launch it is: an administrator's, as the training user and begun by root, or somebody's own, without root.

It follows from who logs in on the nodes (launch_as), and is the same on all of them.
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
# Whoever reads it has another inventory than administrators do, so there is no command to be typed.
USERS = "site.yml --tags launch_users"
ADMINISTRATOR = f"An administrator names the account in launch_users, and runs {USERS}"

WHO = Check(
    "launch.who",
    seen="stand-in",
    reads=f"who logs in on each participant, and whether that account is in the group {GROUP} there",
    fires="the same account does not launch on all of them, or the launch is another user's (fail)",
    fix=ADMINISTRATOR,
)
OWN = Check(
    "launch.own",
    seen="stand-in",
    reads="in somebody's own launch: their manager of units, whether it stays without a login, their folder and the "
    "files of the seats",
    fires="one of them is missing (fail)",
    fix=ADMINISTRATOR,
)


class Whose(NamedTuple):
    """manager: system or user. user: the account whose own launch it is; "" for the cluster's."""

    manager: str = SYSTEM
    user: str = ""

    @property
    def own(self) -> bool:
        return self.manager == USER


def whose(requested: str, seen: Mapping[str, Identity]) -> tuple[Whose, list[Finding]]:
    """Return whose launch it is, and what stands against that. requested: launch_as. seen: who logs in, by node."""
    able = [name for name, one in seen.items() if one["launch_user"]]
    if requested == CLUSTER_USER or not seen or (requested == AUTO and not able):
        return Whose(), []
    first = seen[able[0] if able else next(iter(seen))]["name"]
    found = [finding for name, one in seen.items() if (finding := against(name, one, first, able))]
    return Whose(USER, first), found


def against(node: str, one: Identity, first: str, able: list[str]) -> Finding | None:
    name = one["name"] or f"uid {one['uid']}"
    if one["uid"] == 0:
        text = "root logs in, and an own launch is a plain user's"
        return WHO.fail(node, text, fix="Log in as yourself (ansible_user), or set launch_as to cluster_user")
    if not one["launch_user"]:
        there = f", as on {few(able)}" if able else ""
        return WHO.fail(node, f"{name} is not in the group {GROUP} here{there}")
    if not one["name"]:
        return WHO.fail(node, f"{name} has a name that no folder can have", fix="Give the account a plain name")
    if one["name"] != first:
        text = f"{name} logs in here, and {first} on {few(able[:1])}"
        return WHO.fail(node, text, fix="Log in by the same name everywhere (ansible_user)")
    return None


def others(plan: LaunchPlan, seen: Mapping[str, Identity]) -> set[str]:
    """The nodes of somebody's own launch on which another account logs in."""
    return {name for name, one in seen.items() if one["name"] != plan.user} if plan.is_own else set()


def not_theirs(
    plan: LaunchPlan, seen: Mapping[str, Identity], in_their_name: Mapping[str, str] | None = None
) -> list[Finding]:
    """What stands against following or ending somebody's own launch: that user comes to it, and root, as that user.

    in_their_name: why root could not, by node; "" where it could. None: before that was tried.
    """
    tried = {} if in_their_name is None else in_their_name
    user = plan.user
    found = []
    for name in sorted(others(plan, seen)):
        text = f"launch {plan.launch_id} is {user}'s own, and {seen[name]['name']} logs in"
        if seen[name]["launch_user"]:
            fix = f"Log in as {user} (ansible_user), or as an administrator who has no launches of their own"
            found.append(WHO.fail(name, text, fix=fix))
        elif tried.get(name):
            fix = f"Log in as {user} (ansible_user), or as somebody whom sudo lets act for others"
            found.append(WHO.fail(name, f"{text}, who cannot act for {user} there: {tried[name]}", fix=fix))
    return found


def as_own(request: LaunchRequest, user: str) -> LaunchRequest:
    """The same launch as this user's own: as that user, in folders that are theirs."""
    home = f"{request.cluster.users_root}/{user}"
    cluster = replace(request.cluster, user=user, run_root=f"{home}/launches", work_root=f"{home}/work")
    return replace(request, cluster=cluster, manager=USER)


def own(entry: PlannedNode, facts: Facts, seats: Iterable[str], users_root: str) -> list[Finding]:
    """What stands against an own launch on this node. users_root: the folder of the launches of this user there."""
    seen, node = facts["own"], entry.node
    if seen is None:
        return []
    missing = [seat for seat in seats if seat not in seen["seats"]]
    found = []
    if seen["manager_why"]:
        found.append(OWN.fail(node, f"the user's own systemd does not answer: {seen['manager_why']}"))
    elif not seen["lingers"]:
        found.append(OWN.fail(node, "the user's own systemd ends with the last login (no linger)"))
    elif seen["group_is_new"]:
        text = f"the user's own systemd runs since before the account was in the group {GROUP}"
        fix = "End all of the user's sessions and units there, or restart the node; until then look with"
        found.append(OWN.fail(node, text, fix, shell("systemctl status user@{uid}.service", uid=facts["uid"])))
    if missing:
        found.append(OWN.fail(node, f"{few(missing)} cannot be reserved: it has no file that the user comes to"))
    if facts["disk"]["path"] != users_root and not facts["disk"]["path"].startswith(f"{users_root}/"):
        found.append(OWN.fail(node, f"there is no folder {users_root}"))
    return found


def notes(seen: Mapping[str, Facts]) -> list[str]:
    """What the nodes cannot hold an own launch to, in sentences."""
    found = []
    for what, sentence in (
        ("memory", "the kernel does not hold an own launch to its limit of memory (that needs cgroup v2)"),
        ("pids", "the kernel does not hold an own launch to a number of processes (that needs cgroup v2)"),
    ):
        where = [name for name, facts in seen.items() if facts["own"] and what in facts["own"]["not_held"]]
        found += [f"{few(where)}: {sentence}"] if where else []
    locked: dict[int, list[str]] = {}
    for name, facts in seen.items():
        if facts["own"] and (most := facts["own"]["limits"].get("memlock")) is not None:
            locked.setdefault(most, []).append(name)
    found += [
        f"{few(names)}: ranks may lock {most // 1024} KiB of memory, too little for RDMA; an administrator raises it"
        f" (launch_users_memlock) with {USERS}"
        for most, names in locked.items()
    ]
    uids: dict[int, list[str]] = {}
    for name, facts in seen.items():
        uids.setdefault(facts["uid"], []).append(name)
    if len(uids) > 1 and any(facts["own"] for facts in seen.values()):
        each = "; ".join(f"{uid} on {few(names)}" for uid, names in uids.items())
        found.append(f"the account has not the same uid everywhere, so that shared files have several owners: {each}")
    return found
