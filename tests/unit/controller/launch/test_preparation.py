"""Preflight checks of a launch: every node is checked, and all must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan, a_settings, a_user_request, facts_of_a_fit_node
from muster_controller.launch.preparation import prepare

if TYPE_CHECKING:
    from muster.launch.planned import LaunchPlan

FACTS = facts_of_a_fit_node(caches={})
ADMIN = {"uid": 1000, "gid": 1000, "name": "admin", "launch_user": False}
PLAN = a_plan({"node1": 2, "node2": 2}, entry={"environment": "/opt/x"})


def nodes(**of_node2: list[Any]) -> AnsweringNodes:
    """Return two nodes that pass preflight. of_node2: different answers of node2, by verb."""
    good = {"identity": [ADMIN], "prepare": [FACTS]}
    second = {**good, **of_node2}
    answers = {("node1", verb): list(given) for verb, given in good.items()}
    return AnsweringNodes({**answers, **{("node2", verb): list(given) for verb, given in second.items()}})


def never() -> bool:
    return False


def test_launch_starts_if_all_nodes_pass_preflight() -> None:
    asked = nodes()
    prepared = prepare(PLAN, a_settings(), asked, never)
    assert not prepared.refused
    assert prepared.reached == {"node1", "node2"}
    assert prepared.readers["node2"] == ADMIN
    assert [entry.env["HOME"] for entry in prepared.plan.nodes] == ["/home/muster"] * 2
    requests = {name: payload for name, verb, payload in asked.asked if verb == "prepare"}
    assert [requests[name]["port"] for name in ("node1", "node2")] == [29500, None]
    assert requests["node1"]["script"] == "/srv/job/train.py"
    assert requests["node1"]["run_root"] == "/var/lib/muster/launches"
    assert requests["node1"]["work_root"] == "/var/lib/muster/work"


def test_launch_is_blocked_if_one_node_fails_preflight() -> None:
    prepared = prepare(PLAN, a_settings(), nodes(prepare=[{**FACTS, "systemd": False}]), never)
    assert prepared.refused
    assert prepared.plan is PLAN
    assert [f"{one.node} {one.id}" for one in prepared.findings] == ["node1 launch.preflight", "node2 launch.systemd"]


def test_unreachable_or_failing_node_is_reported() -> None:
    for given, said in (
        ({"identity": []}, "launch.unreachable: unreachable: no response within 30 s"),
        ({"identity": ["Permission denied"]}, "launch.look: could not be checked: Permission denied"),
        (
            {"prepare": [{**FACTS, "disk": 7}]},
            "launch.look: could not be checked: invalid response (Type",
        ),
        ({"prepare": []}, "launch.unreachable: unreachable: no response within 30 s"),
        ({"prepare": ["sudo: a password is required"]}, "launch.look: could not be checked: sudo: a password"),
    ):
        prepared = prepare(PLAN, a_settings(), nodes(**given), never)
        assert prepared.refused
        assert prepared.reached == {"node1"}
        assert f"{prepared.findings[1].id}: {prepared.findings[1].summary}".startswith(said)


def test_fix_for_missing_sudo_suggests_launch_users() -> None:
    prepared = prepare(PLAN, a_settings(), nodes(prepare=["sudo: a password is required"]), never)
    assert prepared.findings[1].fix["text"] == (
        "Fix the error, or have an administrator add admin to launch_users, then run again"
    )


# ---------------------------------------------------------------- user launches

ADA = {"uid": 1003, "gid": 1003, "name": "ada", "launch_user": True}
OWN_FACTS = {
    **FACTS,
    "uid": 1003,
    "disk": {**FACTS["disk"], "path": "/var/lib/muster/users/ada"},
    "own": {
        "manager_why": "",
        "lingers": True,
        "group_is_new": False,
        "seats": ["cpu"],
        "limits": {},
        "not_held": ["memory"],
    },
}


def own_plan(user: str) -> LaunchPlan:
    return a_plan({"node1": 2, "node2": 2}, a_user_request(user), entry={"environment": "/opt/x"})


def ada_nodes(**of_node2: list[Any]) -> AnsweringNodes:
    good = {"identity": [ADA], "prepare": [OWN_FACTS]}
    table = {("node1", verb): list(given) for verb, given in good.items()}
    return AnsweringNodes({**table, **{("node2", verb): given for verb, given in {**good, **of_node2}.items()}})


AUTO = a_settings(run_as="auto")


def test_login_as_a_launch_user_makes_it_a_user_launch() -> None:
    asked = ada_nodes()
    prepared = prepare(PLAN, AUTO, asked, never, own_plan)
    assert [one.status for one in prepared.findings] == ["pass", "pass"]
    assert (asked.own, prepared.plan.user, prepared.plan.manager) == (True, "ada", "user")
    request = next(payload for _, verb, payload in asked.asked if verb == "prepare")
    assert (request["user"], request["run_root"]) == ("ada", "/var/lib/muster/users/ada/launches")
    assert prepared.notes == ["node1, node2: memory limits are not enforced for user launches (requires cgroup v2)"]


def test_administrator_launch_can_be_requested_explicitly() -> None:
    asked = ada_nodes(prepare=[FACTS])
    prepare(PLAN, a_settings(), asked, never, own_plan)
    assert not asked.own


def test_user_without_access_to_all_nodes_is_rejected_first() -> None:
    asked = ada_nodes(identity=[{**ADA, "launch_user": False}])
    prepared = prepare(PLAN, AUTO, asked, never, own_plan)
    assert prepared.refused
    assert [one.id for one in prepared.findings] == ["launch.who"]
    assert {verb for _, verb, _ in asked.asked} == {"identity"}
    gone = prepare(PLAN, a_settings(run_as="self"), ada_nodes(identity=["no route to host"]), never, own_plan)
    assert gone.refused
    assert [f"{one.node} {one.id}" for one in gone.findings] == ["node1 launch.preflight", "node2 launch.look"]
