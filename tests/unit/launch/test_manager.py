"""The type of a launch, determined by the accounts that log in to its nodes, and problems that block a user launch.

cases/whose: the requested type, and each node's differences from the launch user ada -> manager, user and problems.
cases/own: differences from the facts of a healthy node -> the problems.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cases import cases
from launch_shapes import a_plan, a_request, a_user_request
from muster.launch import manager

ADA = {"uid": 1000, "gid": 1000, "name": "ada", "launch_user": True}
OWN = {
    "manager_why": "",
    "lingers": True,
    "group_is_new": False,
    "seats": ["cpu", "gpu-0"],
    "limits": {"memlock": None, "nofile": 524288},
    "not_held": [],
}
ROOT = "/var/lib/muster/users/ada"
RAISED = "an administrator must increase launch_users_memlock and run site.yml --tags launch_users"
SEVERAL = "shared files get different owners"


def shown(findings: list[Any]) -> list[str]:
    assert all(one.fix.get("text") for one in findings)
    return [f"{one.node} {one.id} {one.status}: {one.summary}" for one in findings]


@cases(__file__, "whose")
def test_manager_and_user_of_a_launch_match_the_case(case: dict[str, Any]) -> None:
    seen: Any = {name: {**ADA, **one} for name, one in case["seen"].items()}
    whose, against = manager.whose(case["requested"], seen)
    assert [whose.manager, whose.user] == case["whose"]
    assert shown(against) == case.get("against", [])


@cases(__file__, "own")
def test_obstacles_to_a_user_launch_are_reported(case: dict[str, Any]) -> None:
    facts: Any = {"uid": 1000, "disk": {"path": case.get("disk", ROOT)}, "own": {**OWN, **case["own"]}}
    found = manager.own(a_plan(1).head, facts, case.get("seats", ["cpu"]), ROOT)
    assert shown(found) == case["expect"]


def test_user_checks_do_not_apply_to_an_administrator_launch() -> None:
    one: Any = {"uid": 0, "own": None}
    other: Any = {"uid": 1, "own": None}
    assert manager.own(a_plan(1).head, one, ["cpu"], "") == []
    assert manager.notes({"node1": one, "node2": other}) == []


def test_unenforced_limits_are_reported_once_for_all_nodes() -> None:
    one: Any = {"uid": 1000, "own": {**OWN, "not_held": ["memory", "pids"], "limits": {"memlock": 8 << 20}}}
    other: Any = {"uid": 1001, "own": {**OWN, "not_held": ["memory"]}}
    assert manager.notes({"node1": one, "node2": other}) == [
        "node1, node2: memory limits are not enforced for user launches (requires cgroup v2)",
        "node1: limits on the number of processes are not enforced for user launches (requires cgroup v2)",
        f"node1: ranks can lock only 8192 KiB of memory, too little for RDMA; {RAISED}",
        f"the account has different uids on the nodes, so {SEVERAL}: 1000 on node1; 1001 on node2",
    ]


def test_other_users_cannot_follow_a_user_launch() -> None:
    plan = a_plan(2, a_user_request("ada"))
    seen: Any = {"node1": ADA, "node2": {**ADA, "name": "bob"}}
    assert shown(manager.not_theirs(plan, seen)) == [
        "node2 launch.who fail: launch 20260101-120000-abcd is a user launch of ada, but the login account is bob"
    ]
    assert manager.not_theirs(replace(plan, manager="system"), seen) == []


def test_administrator_follows_a_user_launch_as_the_launch_user() -> None:
    plan = a_plan(2, a_user_request("ada"))
    seen: Any = {"node1": ADA, "node2": {**ADA, "name": "admin", "launch_user": False}}
    assert manager.not_theirs(plan, seen) == []
    assert manager.others(plan, seen) == {"node2"}
    assert manager.others(replace(plan, manager="system"), seen) == set()
    assert manager.not_theirs(plan, seen, {"node2": ""}) == []
    [refused] = shown(manager.not_theirs(plan, seen, {"node2": "sudo: a password is required"}))
    assert refused.endswith(
        "of ada, but the login account is admin, which cannot act as ada: sudo: a password is required"
    )


def test_user_launch_uses_the_folders_of_its_user() -> None:
    own = manager.as_own(a_request(), "ada")
    assert (own.cluster.user, own.cluster.run_root, own.cluster.work_root, own.manager) == (
        "ada",
        f"{ROOT}/launches",
        f"{ROOT}/work",
        "user",
    )
