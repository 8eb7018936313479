"""Running launches on a node that will be removed, as reported by the other nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster_controller.launch.elsewhere import Heard
from muster_controller.members import members
from muster_controller.members.members import Members


def job(launch_id: str, nodes: list[str], *, over: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "launch_id": launch_id,
        "user": "muster",
        "manager": "system",
        "over": over,
        "nodes": nodes,
        "by": "anna@ctl",
        **more,
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Members:
    found = Members.__new__(Members)
    found.action = found.task_vars = cast("Any", {})  # no connection is made
    own = {
        "cluster_run_root": "/r",
        "cluster_users_root": "/u",
        "cluster_launch_nodes": [],
        "cluster_quarantined": False,
    }
    found.nodes = {"node1": own, "node2": {**own, "cluster_quarantined": {"reason": "a fan"}}, "node3": own}
    monkeypatch.setattr(members, "connect", lambda _action, name, _vars: name)
    monkeypatch.setattr(members, "opened", lambda _connections: SimpleNamespace(close=lambda: None))
    return found


def reply(monkeypatch: pytest.MonkeyPatch, given: dict[str, list[dict[str, Any]]], silent: dict[str, str]) -> None:
    answers = {name: {"launches": jobs} for name, jobs in given.items()}
    monkeypatch.setattr(members, "ask", lambda *_: Heard({}, answers, silent))


def test_launch_on_a_silent_node_is_found_through_other_nodes(
    cluster: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job("20261124-101010-aaaa", ["node1", "node3"]), job("20261124-101010-bbbb", ["node1", "node2"])]
    reply(monkeypatch, {"node1": jobs}, {"node3": "timed out"})
    running, found = cluster.launches(["node1", "node3"], ["node3"])
    assert running == {"20261124-101010-aaaa": "node3: launch 20261124-101010-aaaa of muster (by anna@ctl) is running"}
    assert found.silent == {"node3": "timed out"}


def test_only_finished_launches_are_ignored(cluster: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    over = job("20261124-101010-aaaa", ["node3"], over=True)
    hidden = job("20261124-101010-bbbb", [], by="")
    reply(monkeypatch, {"node3": [over, hidden]}, {})
    assert list(cluster.launches(["node3"], ["node3"])[0]) == ["20261124-101010-bbbb"]


def test_participants_depend_on_quarantine_and_launch_nodes(cluster: Members) -> None:
    assert cluster.taking_part() == ["node1", "node3"]
    assert cluster.taking_part(without=["node1"]) == ["node3"]
    assert cluster.taking_part(again=["node2"]) == ["node1", "node2", "node3"]
    cluster.nodes["node1"] = {**cluster.nodes["node1"], "cluster_launch_nodes": ["node3"]}
    assert cluster.taking_part() == ["node3"]
