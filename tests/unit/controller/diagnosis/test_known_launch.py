"""Diagnosis on request, from the folder of the launch or from nodes whose answers come from a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import LAUNCH_ID, a_plan
from muster.launch.plan import PlanError
from muster_controller.diagnosis.known_launch import KnownLaunch, kept_case, newest

if TYPE_CHECKING:
    from pathlib import Path

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nValueError: no such sample\n'
CLUSTER = {"cluster_run_root": "/var/lib/muster/launches", "cluster_users_root": "/var/lib/muster/users"}


def plan() -> dict[str, Any]:
    return a_plan(1, entry={"interface": "eth0"}).as_json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / LAUNCH_ID
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan()))
    return folder


def log(text: str) -> dict[str, Any]:
    return {"begin": 0, "gap": 0, "offset": len(text), "text": text, "more": False}


def known(folder: Path, messages: AnsweringNodes) -> KnownLaunch:
    return KnownLaunch(LAUNCH_ID, folder, messages, ["node1"], CLUSTER, lambda: False)


def followed(*, over: bool) -> dict[tuple[str, str], list[Any]]:
    identity = {"uid": 1000, "gid": 1000, "name": "admin", "launch_user": False}
    said = {"logs": {"0/stderr": log(RAISED), "agent": log("(exitcode: 1) local_rank: 0 (pid: 7)")}, "over": over}
    return {("node1", "identity"): [identity], ("node1", "follow"): [said]}


def test_finished_launch_is_read_from_its_nodes(folder: Path) -> None:
    case = known(folder, AnsweringNodes(followed(over=True))).case()
    assert not case.launch["live"]
    first, _ = case.failures
    assert first is not None
    assert (first.node, first.rank, first.summary) == ("node1", 0, "ValueError: no such sample")


def test_diagnosis_of_a_running_launch_does_not_renew_its_lease(folder: Path) -> None:
    shot = {"at": 1.0, "ranks": [], "left": [], "listeners": [], "half_open": [], "frozen": False, "unseen": {}}
    messages = AnsweringNodes({**followed(over=False), ("node1", "snapshot"): [shot]})
    case = known(folder, messages).case()
    assert case.launch["live"]
    assert list(case.seen["snapshots"]) == ["node1"]
    assert {verb for _, verb, _ in messages.asked} == {"identity", "follow", "snapshot"}


@pytest.mark.parametrize(
    ("login", "is_user", "expected"),
    [
        ("anna", True, ({"own": True}, False)),
        ("ben", True, ({"own": True}, False)),  # cannot read them
        ("admin", False, ({"own": True, "as": "anna"}, True)),
    ],
)
def test_only_an_administrator_reads_a_user_launch_as_its_user(
    folder: Path, login: str, is_user: bool, expected: tuple[dict[str, Any], bool]
) -> None:
    (folder / "plan.json").write_text(json.dumps({**plan(), "manager": "user", "user": "anna"}))
    who = {"name": login, "launch_user": is_user}
    assert known(folder, AnsweringNodes({})).access(who) == expected


def test_administrator_launch_is_read_as_root(folder: Path) -> None:
    assert known(folder, AnsweringNodes({})).access({"name": "admin", "launch_user": False}) == ({"own": False}, True)


def test_local_copy_of_the_logs_is_read_if_a_node_is_silent(folder: Path) -> None:
    (folder / "logs/node1").mkdir(parents=True)
    (folder / "logs/node1/rank0.stderr.log").write_text(RAISED)
    (folder / "verdict.json").write_text(json.dumps({"summary": "it failed"}))
    case = known(folder, AnsweringNodes({})).case()
    assert case.seen["not_looked"]["node1"] == "no response"
    assert case.rank_ends[0]["stderr"] == RAISED
    assert case.launch["ending_text"] == "it failed"


def test_unknown_launch_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as problem:
        known(tmp_path / "nothing", AnsweringNodes({("node1", "identity"): ["no route to host"]}))
    assert f"{LAUNCH_ID} is not known on this controller" in problem.value.problems[0]


def test_evidence_collected_at_the_failure_takes_precedence(folder: Path) -> None:
    assert newest(folder.parent) == LAUNCH_ID
    assert kept_case(folder) is None
    for live, found in ((True, False), (False, True)):
        kept = {"schema": 1, "launch": {"launch_id": LAUNCH_ID, "live": live}}
        (folder / "evidence.json").write_text(json.dumps(kept))
        assert (kept_case(folder) is not None) is found
    case = kept_case(folder)
    assert case is not None
    assert case.launch["launch_id"] == LAUNCH_ID
