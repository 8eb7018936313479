"""Whose launch it is, from who logs in on its nodes; and what stands against somebody's own.

cases/whose: requested, seen by node as far as it differs from ada, a launch user -> the manager, the user, what stands
against it. cases/own: facts of a node as far as they differ from a fit one -> what stands against it.
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
RAISED = "an administrator raises it (launch_users_memlock) with site.yml --tags launch_users"
SEVERAL = "shared files have several owners"


def shown(findings: list[Any]) -> list[str]:
    assert all(one.fix.get("text") for one in findings)
    return [f"{one.node} {one.id} {one.status}: {one.summary}" for one in findings]


@cases(__file__, "whose")
def test_whose(case: dict[str, Any]) -> None:
    seen: Any = {name: {**ADA, **one} for name, one in case["seen"].items()}
    whose, against = manager.whose(case["requested"], seen)
    assert [whose.manager, whose.user] == case["whose"]
    assert shown(against) == case.get("against", [])


@cases(__file__, "own")
def test_own(case: dict[str, Any]) -> None:
    facts: Any = {"uid": 1000, "disk": {"path": case.get("disk", ROOT)}, "own": {**OWN, **case["own"]}}
    found = manager.own(a_plan(1).head, facts, case.get("seats", ["cpu"]), ROOT)
    assert shown(found) == case["expect"]


def test_of_an_administrators_launch_nothing_is_asked() -> None:
    one: Any = {"uid": 0, "own": None}
    other: Any = {"uid": 1, "own": None}
    assert manager.own(a_plan(1).head, one, ["cpu"], "") == []
    assert manager.notes({"node1": one, "node2": other}) == []


def test_what_is_not_held_is_said_once_for_all_nodes() -> None:
    one: Any = {"uid": 1000, "own": {**OWN, "not_held": ["memory", "pids"], "limits": {"memlock": 8 << 20}}}
    other: Any = {"uid": 1001, "own": {**OWN, "not_held": ["memory"]}}
    assert manager.notes({"node1": one, "node2": other}) == [
        "node1, node2: the kernel does not hold an own launch to its limit of memory (that needs cgroup v2)",
        "node1: the kernel does not hold an own launch to a number of processes (that needs cgroup v2)",
        f"node1: ranks may lock 8192 KiB of memory, too little for RDMA; {RAISED}",
        f"the account has not the same uid everywhere, so that {SEVERAL}: 1000 on node1; 1001 on node2",
    ]


def test_only_its_user_follows_an_own_launch() -> None:
    plan = a_plan(2, a_user_request("ada"))
    seen: Any = {"node1": ADA, "node2": {**ADA, "name": "bob"}}
    assert shown(manager.not_theirs(plan, seen)) == [
        "node2 launch.who fail: launch 20260101-120000-abcd is ada's own, and bob logs in"
    ]
    assert manager.not_theirs(replace(plan, manager="system"), seen) == []


def test_an_administrator_comes_to_an_own_launch_in_its_users_name() -> None:
    plan = a_plan(2, a_user_request("ada"))
    seen: Any = {"node1": ADA, "node2": {**ADA, "name": "admin", "launch_user": False}}
    assert manager.not_theirs(plan, seen) == []
    assert manager.others(plan, seen) == {"node2"}
    assert manager.others(replace(plan, manager="system"), seen) == set()
    assert manager.not_theirs(plan, seen, {"node2": ""}) == []
    [refused] = shown(manager.not_theirs(plan, seen, {"node2": "sudo: a password is required"}))
    assert refused.endswith("ada's own, and admin logs in, who cannot act for ada there: sudo: a password is required")


def test_an_own_launch_has_folders_of_its_user() -> None:
    own = manager.as_own(a_request(), "ada")
    assert (own.cluster.user, own.cluster.run_root, own.cluster.work_root, own.manager) == (
        "ada",
        f"{ROOT}/launches",
        f"{ROOT}/work",
        "user",
    )
