"""Launches started by another controller: they are found through the plans stored on the nodes, or rejected with a
reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import LAUNCH_ID, RUN_DIR, a_plan
from muster.launch.plan import PlanError
from muster_controller.launch.elsewhere import ask, find, packed, unpacked
from muster_node.launch import kept

NODES = ["node1", "node2"]
CLUSTER = {"cluster_run_root": "/var/lib/muster/launches", "cluster_users_root": "/var/lib/muster/users"}
PLAN = a_plan()
WHO = {"uid": 1000, "gid": 1000, "name": "admin", "launch_user": False}


def saved(plan: Any = PLAN, reader: int | None = 1000, run_dir: str = RUN_DIR) -> dict[str, Any]:
    return {"plan": packed(plan) if plan else "", "run_dir": run_dir, "reader": reader}


def nodes(*plans: Any, who: dict[str, Any] = WHO) -> AnsweringNodes:
    said = zip(NODES, plans, strict=True)
    return AnsweringNodes({(name, "identity"): [who] for name in NODES} | {(name, "plan"): [one] for name, one in said})


def test_launch_is_found_on_its_nodes() -> None:
    there = nodes(saved(), saved(None))
    assert find(there, NODES, LAUNCH_ID, CLUSTER) == (PLAN, False)
    asked = [payload for _, verb, payload in there.asked if verb == "plan"]
    assert [(one["node"], one["own"], one["run_root"]) for one in asked] == [
        ("node1", False, "/var/lib/muster/launches"),
        ("node2", False, "/var/lib/muster/launches"),
    ]


def test_plan_readable_by_another_user_is_read_as_root() -> None:
    assert find(nodes(saved(reader=1001), saved(reader=1001)), NODES, LAUNCH_ID, CLUSTER).as_root
    assert not find(nodes(saved(reader=None), saved(reader=None)), NODES, LAUNCH_ID, CLUSTER).as_root


@pytest.mark.parametrize(
    ("plans", "problem"),
    [
        ((saved(None), saved(None)), "Launch 20260101-120000-abcd is not known on this controller or on node1, node2."),
        ((saved(None), "no route to host"), "node2 did not respond: no route to host"),
        ((saved(), saved(replace(PLAN, master_port=7))), "node1, node2 have different plans of"),
        (
            (saved(), saved(replace(PLAN, launch_id="x"))),
            "node2: the stored plan of 20260101-120000-abcd is invalid",
        ),
        ((saved(run_dir="/srv/other"), saved()), "the plan has an invalid entry for a node"),
        (({**saved(), "plan": "?"}, saved(None)), "not a launch plan"),
    ],
)
def test_unusable_plan_is_rejected_with_node_and_reason(plans: tuple[Any, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem.replace("(", r"\(")):
        find(nodes(*plans), NODES, LAUNCH_ID, CLUSTER)


def test_launch_user_queries_nodes_without_root() -> None:
    there = nodes(saved(), saved(), who={**WHO, "launch_user": True})
    heard = ask(there, NODES, "plan", {"launch_id": LAUNCH_ID})
    assert [payload["own"] for _, verb, payload in there.asked if verb == "plan"] == [True, True]
    assert set(heard.said) == set(NODES)


def test_plan_is_unchanged_after_packing_and_unpacking() -> None:
    assert unpacked(packed(PLAN)) == PLAN.as_json()
    assert json.loads(kept.unpacked(packed(PLAN))) == PLAN.as_json()
    assert unpacked(kept.packed(json.dumps(PLAN.as_json()).encode())) == PLAN.as_json()
    for text in (None, 7, "x", "eA=="):
        assert unpacked(text) is None
    with pytest.raises(OSError, match="cannot be stored"):
        kept.unpacked("eA==")
