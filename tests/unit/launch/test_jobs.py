"""The list of launches, and plans stored on nodes. Both are untrusted, because users can write them."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from launch_shapes import LAUNCH_ID, RUN_DIR, a_plan
from muster.launch.jobs import merge, outcome, table, usable

PLAN = a_plan(
    {"node1": 2, "node2": 2},
    given={"HF_TOKEN": "launch_env_file"},
    fetch={"patterns": ["results/*"], "most": 1000, "folder": ""},
).as_json()


@cases(__file__, "jobs")
def test_list_of_launches_matches_the_case(case: dict[str, Any]) -> None:
    assert table(merge(case["answers"]), case["answers"], 2) == case["lines"]


@pytest.mark.parametrize(
    "answer",
    [
        {"launches": 7},
        {"launches": [7, None, {"launch_id": 7}, {"launch_id": LAUNCH_ID}]},
        {
            "launches": [{"launch_id": LAUNCH_ID, "nodes": 7, "lines": {}, "seats": 7, "result": [], "ended_at": "x"}],
            "gpus": 7,
        },
        {
            "launches": [{"launch_id": LAUNCH_ID, "seats": ["gpu-0", 7, "cpu"], "nodes": [7]}],
            "gpus": {"0": {"busy": "x"}},
        },
        {"launches": [], "left_out": "x"},
        {},
    ],
)
def test_answer_with_wrong_shape_is_tolerated(answer: dict[str, Any]) -> None:
    assert table(merge({"node1": answer}), {"node1": answer}, 2)


def test_stored_plan_can_be_used_again() -> None:
    assert usable(PLAN, LAUNCH_ID, RUN_DIR, ["node1", "node2", "node3"]) == ""


def test_plan_in_another_users_folder_is_rejected() -> None:
    """When an administrator stops a user launch, root acts as the user named in the plan."""
    own, names = {**PLAN, "manager": "user", "user": "ada"}, ["node1", "node2"]
    assert usable(own, LAUNCH_ID, RUN_DIR, names, "ada") == ""
    for plan, owner in ((own, "bob"), (own, ""), (PLAN, "ada"), ({**PLAN, "user": "ada"}, "ada")):
        assert usable(plan, LAUNCH_ID, RUN_DIR, names, owner) == "the plan is in the folder of another user"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes": []}, "not a launch plan"),
        ({"nodes": 7}, "not a launch plan"),
        ({"launch_id": "20260101-120000-0000"}, "the plan belongs to another launch"),
        ({"manager": "mine"}, "the plan belongs to another launch"),
        ({"user": ""}, "the plan is incomplete"),
        ({"manager": "user"}, "the plan is in the folder of another user"),
        ({"master_port": "29500"}, "the plan is incomplete"),
        ({"given": []}, "the plan is incomplete"),
        ({"fetch": {"patterns": ["/etc/*"], "most": 1, "folder": ""}}, "the plan has invalid fetch options"),
        ({"fetch": {"patterns": ["*"], "most": "1", "folder": ""}}, "the plan has invalid fetch options"),
        ({"fetch": 7}, "the plan has invalid fetch options"),
        ({"watched": 7}, "the watcher's node is not in the inventory"),
        ({"watched": {"node": "node9", "launch_id": LAUNCH_ID}}, "the watcher's node is not in the inventory"),
        ({"watched": {"node": "node1", "launch_id": "../x"}}, "the watcher's node is not in the inventory"),
    ],
)
def test_unusable_plan_is_rejected_with_a_reason(change: dict[str, Any], why: str) -> None:
    assert usable({**PLAN, **change}, LAUNCH_ID, RUN_DIR, ["node1", "node2"]) == why


@pytest.mark.parametrize(
    "change",
    [
        {"node": "../x"},
        {"node": 7},
        {"run_dir": "/root"},
        {"unit": "sshd.service"},
        {"ranks": [0, 2]},
        {"ranks": []},
        {"ranks": [True, 2]},
        {"nproc": 3},
        {"argv": "x"},
        {"env": {"A": 1}},
        {"work_dir": None},
    ],
)
def test_invalid_node_entry_of_a_plan_is_rejected(change: dict[str, Any]) -> None:
    plan = {**PLAN, "nodes": [{**PLAN["nodes"][0], **change}, PLAN["nodes"][1]]}
    assert usable(plan, LAUNCH_ID, RUN_DIR, ["node1", "node2"]) == "the plan has an invalid entry for a node"


@pytest.mark.parametrize("launch_id", ["../../../x", "20260101-120000-abcd/../x", "x", ""])
def test_invalid_launch_id_is_rejected(launch_id: str) -> None:
    """The launch id becomes part of a path on the controller."""
    entries = [{**entry, "unit": f"muster-launch-{launch_id}.service"} for entry in PLAN["nodes"]]
    plan = {**PLAN, "launch_id": launch_id, "nodes": entries}
    assert usable(plan, launch_id, RUN_DIR, ["node1", "node2"]) == "invalid launch id"


@pytest.mark.parametrize("plan", [None, [], 7, "x", {}])
def test_value_that_is_not_a_plan_is_rejected(plan: Any) -> None:
    assert usable(plan, LAUNCH_ID, RUN_DIR, []) == "not a launch plan"


def test_plan_node_outside_the_inventory_is_reported() -> None:
    assert usable(PLAN, LAUNCH_ID, RUN_DIR, ["node1"]) == "some of its nodes are not in gpu_nodes: node2"


def test_last_line_counts_running_launches_and_shows_the_follow_command() -> None:
    newer = "20260101-130000-abcd"
    answer = {"launches": [{"launch_id": one, "state": "running"} for one in (LAUNCH_ID, newer)]}
    over = {"launches": [{"launch_id": LAUNCH_ID, "over": True}]}
    follow = f"ansible-playbook playbooks/jobs.yml -e jobs_logs={newer}"
    assert outcome(merge({"node1": answer}), ["node1"], []) == (
        f"2 running launches on 1 node; to follow the newest, run: {follow}"
    )
    assert (
        outcome(merge({"node1": over}), ["node1"], ["node2"])
        == "no running launches on 1 node, and node2 did not respond"
    )


def test_last_line_contains_no_invalid_id() -> None:
    forged = {"launches": [{"launch_id": "20260101-120000-abcd\x1b[2J", "state": "running"}]}
    assert merge({"node1": forged}) == []
    assert outcome(merge({"node1": forged}), ["node1"], []) == "no running launches on 1 node"
