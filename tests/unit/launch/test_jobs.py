"""The list of launches, and plans that nodes have kept: both from answers that users may have written."""

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
def test_jobs(case: dict[str, Any]) -> None:
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
def test_answers_of_other_shapes(answer: dict[str, Any]) -> None:
    assert table(merge({"node1": answer}), {"node1": answer}, 2)


def test_a_plan_that_a_node_has_kept() -> None:
    assert usable(PLAN, LAUNCH_ID, RUN_DIR, ["node1", "node2", "node3"]) == ""


def test_a_plan_says_no_other_name_than_that_of_the_folder_it_lies_in() -> None:
    """Root acts in that name when an administrator ends somebody's own launch."""
    own, names = {**PLAN, "manager": "user", "user": "ada"}, ["node1", "node2"]
    assert usable(own, LAUNCH_ID, RUN_DIR, names, "ada") == ""
    for plan, owner in ((own, "bob"), (own, ""), (PLAN, "ada"), ({**PLAN, "user": "ada"}, "ada")):
        assert usable(plan, LAUNCH_ID, RUN_DIR, names, owner) == "it lies in another's folder than it says"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes": []}, "it is no plan"),
        ({"nodes": 7}, "it is no plan"),
        ({"launch_id": "20260101-120000-0000"}, "it is another launch's"),
        ({"manager": "mine"}, "it is another launch's"),
        ({"user": ""}, "it is not whole"),
        ({"manager": "user"}, "it lies in another's folder than it says"),
        ({"master_port": "29500"}, "it is not whole"),
        ({"given": []}, "it is not whole"),
        ({"fetch": {"patterns": ["/etc/*"], "most": 1, "folder": ""}}, "what it fetches makes no sense"),
        ({"fetch": {"patterns": ["*"], "most": "1", "folder": ""}}, "what it fetches makes no sense"),
        ({"fetch": 7}, "what it fetches makes no sense"),
        ({"watched": 7}, "its watcher is on no node of the inventory"),
        ({"watched": {"node": "node9", "launch_id": LAUNCH_ID}}, "its watcher is on no node of the inventory"),
        ({"watched": {"node": "node1", "launch_id": "../x"}}, "its watcher is on no node of the inventory"),
    ],
)
def test_a_plan_that_cannot_be_followed(change: dict[str, Any], why: str) -> None:
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
def test_what_a_plan_says_of_a_node(change: dict[str, Any]) -> None:
    plan = {**PLAN, "nodes": [{**PLAN["nodes"][0], **change}, PLAN["nodes"][1]]}
    assert usable(plan, LAUNCH_ID, RUN_DIR, ["node1", "node2"]) == "what it says of a node has no such shape"


@pytest.mark.parametrize("launch_id", ["../../../x", "20260101-120000-abcd/../x", "x", ""])
def test_what_has_no_id_is_no_launch(launch_id: str) -> None:
    """The id becomes a folder here, whatever a node's plan has in its places."""
    entries = [{**entry, "unit": f"muster-launch-{launch_id}.service"} for entry in PLAN["nodes"]]
    plan = {**PLAN, "launch_id": launch_id, "nodes": entries}
    assert usable(plan, launch_id, RUN_DIR, ["node1", "node2"]) == "its id is that of no launch"


@pytest.mark.parametrize("plan", [None, [], 7, "x", {}])
def test_what_is_no_plan(plan: Any) -> None:
    assert usable(plan, LAUNCH_ID, RUN_DIR, []) == "it is no plan"


def test_a_node_that_left_the_inventory() -> None:
    assert usable(PLAN, LAUNCH_ID, RUN_DIR, ["node1"]) == "node2 took part, and is not in gpu_nodes"


def test_the_last_line_has_the_number_that_run_and_how_the_newest_is_followed() -> None:
    newer = "20260101-130000-abcd"
    answer = {"launches": [{"launch_id": one, "state": "running"} for one in (LAUNCH_ID, newer)]}
    over = {"launches": [{"launch_id": LAUNCH_ID, "over": True}]}
    follow = f"ansible-playbook playbooks/jobs.yml -e jobs_logs={newer}"
    assert outcome(merge({"node1": answer}), ["node1"], []) == (
        f"2 launches run on 1 node; to follow the newest: {follow}"
    )
    assert (
        outcome(merge({"node1": over}), ["node1"], ["node2"]) == "no launches run on 1 node, and node2 did not answer"
    )


def test_the_last_line_holds_nothing_that_is_no_id() -> None:
    forged = {"launches": [{"launch_id": "20260101-120000-abcd\x1b[2J", "state": "running"}]}
    assert merge({"node1": forged}) == []
    assert outcome(merge({"node1": forged}), ["node1"], []) == "no launches run on 1 node"
