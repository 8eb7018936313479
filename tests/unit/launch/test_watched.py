"""What stands against a watcher on the head node, and what is made of its word."""

from __future__ import annotations

from typing import Any

import pytest

from muster.launch import watched
from muster.launch.answers import UnusableError
from muster.launch.manager import USER, Whose
from muster.verdict.finding import Finding, add_up

FIRST, SECOND = "20261123-093142-1df3", "20261123-093301-77a0"
FOUND: dict[str, Any] = {
    "id": "launch.exit",
    "status": "fail",
    "node": "node2",
    "summary": "rank 1 ended with code 3",
    "evidence": [{"source": "stderr", "text": "oh"}],
    "fix": {"text": "Its log", "command": f"{watched.ARTIFACTS}/{SECOND}/logs/node2/rank1.stderr.log"},
}
STATE: dict[str, Any] = {
    "first": 0,
    "said": ["attempt 1 failed"],
    "attempts": [{"number": 1, "launch_id": FIRST, "plan": "x"}],
    "running": True,
    "result": {
        "verdict": {"status": "healthy", "summary": "it failed", "findings": [FOUND]},
        "attempts": [{"number": 1, "launch_id": FIRST, "nodes": ["node1"], "summary": "it failed", "failed": []}],
        "left": True,
    },
}


def test_an_administrators_launch_has_no_watcher() -> None:
    (finding,) = watched.unwatchable("node1", Whose())
    assert (finding.id, finding.status, finding.node) == ("launch.watcher", "fail", "node1")
    assert "an administrator's launch has no such logins" in finding.summary
    assert watched.unwatchable("node1", Whose(USER, "anna")) == []


def test_who_cannot_be_logged_in_on_is_named_with_the_reason_and_what_to_type() -> None:
    tried = {
        "node2": {"code": 0, "said": ""},
        "node3": {"code": 255, "said": "Host key verification failed."},
    }
    nodes = {"node2": "10.0.0.2", "node3": "10.0.0.3", "node4": "10.0.0.4"}
    third, fourth = watched.unreached("node1", "anna", tried, nodes)
    assert (third.node, third.status) == ("node3", "fail")
    assert third.summary.startswith(
        "anna cannot log in here from node1, whose watcher would begin attempts: its host key"
    )
    assert third.fix["command"] == "ansible-playbook playbooks/network.yml -e ssh_mesh_users=anna"
    assert fourth.node == "node4"


def test_its_word_is_read_with_paths_of_this_controller_and_a_status_of_its_findings() -> None:
    found = watched.read({"alive": True, "state": STATE}, "/home/anna/artifacts/lab")
    assert (found.alive, found.over, found.running, found.left) == (True, True, True, True)
    assert found.said == ["attempt 1 failed"]
    assert found.verdict is not None
    assert found.verdict["status"] == "failed"
    (one,) = found.verdict["findings"]
    assert one["fix"]["command"] == f"/home/anna/artifacts/lab/{SECOND}/logs/node2/rank1.stderr.log"
    assert found.history[0]["launch_id"] == FIRST


def test_a_watcher_that_has_said_nothing_is_not_known() -> None:
    found = watched.read({"alive": False, "state": None}, "")
    assert (found.known, found.over) == (False, True)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"attempts": [{"number": 1, "launch_id": "../../etc", "plan": ""}]},
        {"attempts": ["x"]},
        {"said": [7]},
        {"result": {"verdict": {"summary": 1, "findings": []}}},
        {"result": {"verdict": {"summary": "x", "findings": [{**FOUND, "status": "fine"}]}}},
        {"result": {"verdict": {"summary": "x", "findings": [{**FOUND, "id": "<b>"}]}}},
        {"result": {**STATE["result"], "attempts": [{"launch_id": "x"}]}},
    ],
)
def test_what_is_no_word_of_a_watcher_is_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises(UnusableError):
        watched.read({"alive": True, "state": {**STATE, **spoilt}}, "")


def test_a_long_word_is_cut() -> None:
    said = ["x" * 10_000] * 1000
    found = watched.read({"alive": True, "state": {**STATE, "said": said}}, "")
    assert len(found.said) == watched.MOST_SAID
    assert {len(one) for one in found.said} == {watched.MOST_TEXT}


def test_with_its_watcher_a_launch_is_over_and_that_is_said() -> None:
    ended = add_up([Finding("launch.lease", "fail", "node1", "its lease is over")], "its lease is over")
    verdict = watched.gone(ended, "node1", "it has ended without a word")
    assert verdict["status"] == "failed"
    assert [one["id"] for one in verdict["findings"]] == ["launch.watcher", "launch.lease"]
    assert "no further attempt begins: it has ended without a word" in verdict["summary"]
