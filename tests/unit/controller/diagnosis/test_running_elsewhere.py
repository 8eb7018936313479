"""Launches that run on nodes now: a node that could not look is not one on which nothing runs."""

from __future__ import annotations

from typing import Any

from answering_nodes import AnsweringNodes
from muster_controller.diagnosis.running_elsewhere import RunningElsewhere


def there(answer: Any) -> RunningElsewhere:
    who = {"user": "root", "uid": 0, "launch_user": False}
    return RunningElsewhere(AnsweringNodes({("node1", "identity"): [who], ("node1", "agents"): [answer]}), ["node1"])


def test_why_a_node_could_not_look_is_kept() -> None:
    late = "processes could not be looked at: it did not answer within 10 s"
    assert there({"agents": [], "unseen": {"agents": late}}).silent == {"node1": late}
    assert there({"agents": [], "unseen": {}}).silent == {}
    assert there({"agents": [], "unseen": [7]}).silent == {}


def test_what_somebody_without_root_may_not_see_is_no_silence() -> None:
    assert there({"agents": [], "unseen": {"others": "root alone may see them"}}).silent == {}
