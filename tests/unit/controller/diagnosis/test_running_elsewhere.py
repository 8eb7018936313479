"""Detection of running launches on nodes. A failed check is not reported as "no launch is running"."""

from __future__ import annotations

from typing import Any

from answering_nodes import AnsweringNodes
from muster_controller.diagnosis.running_elsewhere import RunningElsewhere


def there(answer: Any) -> RunningElsewhere:
    who = {"user": "root", "uid": 0, "launch_user": False}
    return RunningElsewhere(AnsweringNodes({("node1", "identity"): [who], ("node1", "agents"): [answer]}), ["node1"])


def test_reason_of_a_failed_check_is_kept() -> None:
    late = "processes could not be looked at: it did not answer within 10 s"
    assert there({"agents": [], "unseen": {"agents": late}}).silent == {"node1": late}
    assert there({"agents": [], "unseen": {}}).silent == {}
    assert there({"agents": [], "unseen": [7]}).silent == {}


def test_hidden_processes_of_other_users_are_not_an_error() -> None:
    assert there({"agents": [], "unseen": {"others": "root alone may see them"}}).silent == {}
