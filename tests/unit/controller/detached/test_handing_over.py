"""Requests to a watcher run as the owner of its launch and use only the owner's systemd instance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from muster.launch.watched import WatcherPlace
from muster_controller.detached.handing_over import Watched
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH_ID = "20260101-120000-abcd"


def watched(tmp_path: Path, login: str, *, launch_user: bool) -> tuple[Watched, AnsweringNodes]:
    way: Any = SimpleNamespace(name="node1")
    found = Watched(LAUNCH_ID, way, lambda _text: None, WatcherPlace("ada", "node1", str(tmp_path), ["node1"]))
    found.close()
    who = {"uid": 1000, "gid": 1000, "name": login, "launch_user": launch_user}
    there = AnsweringNodes({("node1", "identity"): [who], ("node1", "end"): [{"error": ""}] * 2})
    found.messages = there
    return found, there


@pytest.mark.parametrize(("login", "by_root"), [("ada", False), ("admin", True)])
def test_requests_to_a_watcher_run_as_the_owner_of_its_launch(tmp_path: Path, login: str, *, by_root: bool) -> None:
    found, there = watched(tmp_path, login, launch_user=login == "ada")
    assert found.end() == found.end() == ""
    assert (there.user, there.by_root) == ("ada", frozenset({"node1"} if by_root else ()))
    assert [verb for _, verb, _ in there.asked] == ["identity", "end", "end"]


def test_another_launch_user_has_no_access_to_the_watcher(tmp_path: Path) -> None:
    found, there = watched(tmp_path, "bob", launch_user=True)
    with pytest.raises(NodeError, match="user launch of ada, but the login user is bob"):
        found.end()
    assert [verb for _, verb, _ in there.asked] == ["identity"]
