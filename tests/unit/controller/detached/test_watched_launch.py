"""Attaching to a watched launch: answers of its watcher are untrusted input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_node, a_user_request
from muster.launch.plan import NodeSpec, build_plan
from muster.launch.watched import Word
from muster.verdict.finding import add_up
from muster_controller.detached.watched_launch import WatchedLaunch
from muster_controller.launch.elsewhere import packed

if TYPE_CHECKING:
    from muster.launch.planned import LaunchPlan

FIRST, SECOND = "20261123-085513-709e", "20261123-085600-11aa"
NODES = [a_node(number) for number in (1, 2)]
HEALTHY = add_up([], "ok", [], [])


def plan_of(launch_id: str, **changes: Any) -> LaunchPlan:
    return replace(plan_on(NODES, launch_id), **changes)


def plan_on(nodes: list[NodeSpec], launch_id: str) -> LaunchPlan:
    watched = {"watched": {"node": "node1", "launch_id": FIRST}}
    return build_plan(a_user_request("anna", launch_id=launch_id, more=watched), nodes)


def outcome(*attempts: LaunchPlan, folder: Path = Path("/nowhere")) -> tuple[list[str], list[str]]:
    """Return (launch ids of the followed attempts, messages). folder: launches of this controller."""
    said: list[str] = []

    def connect(_name: str) -> Any:
        raise AssertionError("no node is asked")

    settings: Any = None  # no launch is started
    launch = WatchedLaunch(folder, connect, said.append, said.append, settings, [node.name for node in NODES])
    word = Word(
        alive=False,
        known=True,
        attempts=[
            {"number": number, "launch_id": one.launch_id, "plan": packed(one)}
            for number, one in enumerate(attempts, 1)
        ],
        verdict=HEALTHY,
    )
    return [one.launch_id for one in launch.outcome(plan_of(FIRST), word).plans], said


def test_results_of_all_attempts_are_fetched() -> None:
    assert outcome(plan_of(FIRST), plan_of(SECOND)) == ([FIRST, SECOND], [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"user": "ben"}, "folder of another user"),
        ({"manager": "system"}, "folder of another user"),
        ({"nodes": []}, "not a launch plan"),
        ({"fetch": {"patterns": ["../x"], "most": 1, "folder": ""}}, "invalid fetch options"),
    ],
)
def test_invalid_attempt_is_skipped_and_reported(changes: dict[str, Any], why: str) -> None:
    plans, said = outcome(plan_of(FIRST), plan_of(SECOND, **changes))
    assert plans == [FIRST]
    assert len(said) == 1
    assert said[0].startswith(f"attempt 2 ({SECOND}) cannot be fetched: ")
    assert why in said[0]


def test_plan_with_a_node_outside_the_inventory_is_rejected() -> None:
    more = [*NODES, NodeSpec("node9", "10.0.0.9", NODES[0].torchrun)]
    assert outcome(plan_on(more, FIRST))[0] == []


def test_attempt_does_not_overwrite_folder_of_another_launch(tmp_path: Path) -> None:
    """Otherwise, the attempt would replace the plan and the logs of the other launch."""
    (tmp_path / SECOND).mkdir()
    (tmp_path / SECOND / "plan.json").write_text(json.dumps({"launch_id": SECOND, "user": "ben"}))
    plans, said = outcome(plan_of(FIRST), plan_of(SECOND), folder=tmp_path)
    assert plans == [FIRST]
    assert "the controller already stores another launch with this ID" in said[0]
    (tmp_path / SECOND / "plan.json").write_text(json.dumps(plan_of(SECOND).as_json()))
    assert outcome(plan_of(FIRST), plan_of(SECOND), folder=tmp_path) == ([FIRST, SECOND], [])
    others = {"watched": {"node": "node2", "launch_id": SECOND}}
    assert outcome(plan_of(FIRST), plan_of(SECOND, **others))[0] == [FIRST]
