"""Requests of a launch to its nodes: the user in the payload, and whether the request runs as root."""

from __future__ import annotations

from typing import Any

import pytest

from answering_nodes import AnsweringNodes
from muster_controller.launch.launch_messages import LaunchMessages
from muster_controller.launch.preparation import in_their_name
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram

Sent = list[tuple[str, str, dict[str, Any], bool]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    found: Sent = []

    def ask(_self: Messages, node: str, verb: str, payload: dict[str, Any], *, privileged: bool) -> None:
        found.append((node, verb, payload, privileged))

    monkeypatch.setattr(Messages, "ask", ask)
    return found


def messages() -> LaunchMessages:
    return LaunchMessages({}, NodeProgram("launch"))


def test_administrator_launch_sends_requests_as_root_where_needed(sent: Sent) -> None:
    mine = messages()
    mine.ask("node1", "stop", {"x": 1}, privileged=True)
    mine.ask("node1", "look", {})
    mine.as_root = True  # started by another administrator
    mine.ask("node1", "look", {})
    assert sent == [
        ("node1", "stop", {"x": 1, "own": False, "as": ""}, True),
        ("node1", "look", {"own": False, "as": ""}, False),
        ("node1", "look", {"own": False, "as": ""}, True),
    ]


def test_requests_of_a_user_launch_run_as_that_user(sent: Sent) -> None:
    theirs = messages()
    theirs.own, theirs.user, theirs.by_root = True, "ada", frozenset({"node2"})
    for node in ("node1", "node2"):
        theirs.ask(node, "stop", {}, privileged=True)
        theirs.ask(node, "look", {})
    assert [(node, verb, privileged) for node, verb, _, privileged in sent] == [
        ("node1", "stop", False),
        ("node1", "look", False),
        ("node2", "stop", True),
        ("node2", "look", True),
    ]
    assert all(payload == {"own": True, "as": "ada"} for _, _, payload, _ in sent)


def test_nodes_that_cannot_act_as_the_user_are_reported() -> None:
    ada = {"uid": 1000, "gid": 1000, "name": "ada", "launch_user": True}
    there = AnsweringNodes({("node1", "identity"): [ada], ("node2", "identity"): ["sudo: a password is required"]})
    tried = in_their_name(["node1", "node2", "node3"], there, lambda: False)
    assert tried == {"node1": "", "node2": "sudo: a password is required", "node3": "no response"}
