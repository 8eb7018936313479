"""Observation of a node during a module, with stubs of the module, the connection and the node program."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from muster.road.waiting import NodeActivity
from muster_controller.nodes import activity
from muster_controller.playbook.action import OwnAction
from muster_controller.playbook.node_error import NodeError
from waiting import until

BUSY = {"work": [{"doing": "download", "name": "a_1_all.deb", "done": 1_000_000, "whole": 0}]}
FILES = {"files": [{"name": "a_1_all.deb", "size": 2_000_000}]}
HALF = NodeActivity("downloading a, 1 of 2 MB", 0.5)


class Action(activity.WatchedAction):
    def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self._execute_module("shared_debs", FILES, task_vars={"inventory_hostname": "node2"})


class World:
    """A node that gives these answers, and a module that runs until all are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any, every: float = 0.01) -> None:
        self.answers = list(answers)
        self.shown: list[tuple[str, NodeActivity | None]] = []
        self.connected: list[str] = []
        monkeypatch.setattr(activity, "EVERY", every)
        monkeypatch.setattr(activity, "connect", lambda _action, node, _vars: self.connected.append(node))
        monkeypatch.setattr(activity, "PROGRAM", SimpleNamespace(call=self.call))
        monkeypatch.setattr(OwnAction, "_execute_module", self.module)

    def call(self, *_: Any, privileged: bool) -> Any:
        assert privileged
        if not self.answers:
            raise NodeError("over", reachable=True)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def module(self, *_: Any, **__: Any) -> dict[str, Any]:
        until(lambda: not self.answers)
        time.sleep(0.05)
        return {"changed": True}

    def run(self, delegate_to: str | None = None) -> dict[str, Any]:
        action = Action.__new__(Action)
        action._task = SimpleNamespace(delegate_to=delegate_to)
        action._display = SimpleNamespace(note_activity=lambda *shown: self.shown.append(shown))
        return action.run()


def test_activity_is_shown_and_withdrawn_when_observation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, BUSY, BUSY)
    assert world.run() == {"changed": True}
    assert world.shown == [("node2", HALF), ("node2", HALF), ("node2", None)]
    assert world.connected == ["node2"]


@pytest.mark.parametrize("answer", [NodeError("no route", reachable=False), RuntimeError(), [], {"work": 7}])
def test_failed_observation_does_not_affect_the_module(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    world = World(monkeypatch, answer)
    assert world.run() == {"changed": True}
    assert {activity for _, activity in world.shown} <= {None}


def test_fast_module_makes_no_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, every=60)
    assert world.run() == {"changed": True}
    assert (world.connected, world.shown) == ([], [])


def test_module_on_another_node_is_not_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.run(delegate_to="node1") == {"changed": True}
    assert world.connected == []
