"""Guarded changes: requests to the guard program on the node, confirmation, undo, and error messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.network import guard
from muster_controller.network.guard import PATIENCE, Guard, GuardError, UndoCommand
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    Answers = dict[str, list[dict[str, Any] | NodeError]]

LOST = NodeError("no route to host", reachable=False)
DONE = {"undone": True, "failed": []}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


class Node:
    """A simulated node. For each verb, it returns the listed answers in turn, then repeats the last one. asked: the
    verbs and payloads received."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fresh = 0

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        assert privileged
        size, _, rest = text.partition(b"\n")
        verb, payload = arguments.rpartition(" ")[2], json.loads(rest[int(size) :])
        assert payload.pop("what") == "firewall"
        self.asked.append((verb, payload))
        listed = self.answers[verb]
        answer = listed.pop(0) if len(listed) > 1 else listed[0]
        if isinstance(answer, NodeError):
            raise answer
        return 0, json.dumps(answer), ""

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Node, Guard]]:
    """Return a function that creates (node, guard). By default, the node can arm, confirm and undo. Sleeping takes no
    time."""
    clock = Clock()
    monkeypatch.setattr(guard, "time", clock)

    def make(**answers: Any) -> tuple[Node, Guard]:
        node = Node({"arm": [{"armed": True}], "confirm": [{"confirmed": True}], "undo": [DONE], **answers})

        def connect(_action: object, host: str, task_vars: object, *, fresh: bool = False) -> Node:
            assert (host, task_vars) == ("node1", {})
            node.fresh += fresh
            return node

        monkeypatch.setattr(guard, "connect", connect)
        action: Any = None
        return node, Guard(action, "node1", {}, "firewall", 30)

    return make


def fails(guard: Guard, apply: Callable[[], object] = lambda: None, **more: Any) -> GuardError:
    with pytest.raises(GuardError) as failed:
        guard.change(apply=apply, fix="Look at the rules.", **more)
    return failed.value


def test_change_confirmed_by_a_new_connection_is_kept(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded()
    applied: list[str] = []
    guard.change(
        files=["/etc/x"],
        texts={"rules": "flush"},
        undo=[UndoCommand(["nft", "-f", "-"], "rules"), UndoCommand(("reload",))],
        apply=lambda: applied.append(node.verbs[-1]),
    )
    (_, armed), (_, confirmed) = node.asked
    assert armed == {
        "id": armed["id"],
        "seconds": 30,
        "files": ["/etc/x"],
        "texts": {"rules": "flush"},
        "commands": [{"argv": ["nft", "-f", "-"], "text": "rules"}, {"argv": ["reload"], "text": ""}],
    }
    assert confirmed == {"id": armed["id"]}
    assert (node.verbs, applied, node.fresh) == (["arm", "confirm"], ["arm"], 1)


def test_change_that_writes_no_files_is_guarded(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded()
    guard.change(apply=lambda: None)
    assert {name: node.asked[0][1][name] for name in ("files", "texts", "commands")} == {
        "files": [],
        "texts": {},
        "commands": [],
    }


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"armed": False}, "another run is changing it"), ({"armed": False, "error": "no systemd"}, "no systemd")],
)
def test_change_is_not_applied_if_the_guard_is_not_armed(
    guarded: Callable[..., tuple[Node, Guard]], answer: dict[str, Any], why: str
) -> None:
    node, guard = guarded(arm=[answer])
    applied: list[str] = []
    failed = fails(guard, lambda: applied.append("x"))
    assert (str(failed), failed.undone) == (f"node1: the firewall was not changed: {why}.", True)
    assert (node.verbs, applied) == (["arm"], [])


def test_slow_connection_still_confirms_the_change(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded(confirm=[LOST, LOST, {"confirmed": True}])
    guard.change(apply=lambda: None)
    assert (node.verbs, node.fresh) == (["arm", "confirm", "confirm", "confirm"], 3)


def test_unconfirmed_change_is_undone_and_reported(
    guarded: Callable[..., tuple[Node, Guard]],
) -> None:
    armed = {"armed": True, "id": "", "failed": []}
    node, guard = guarded(confirm=[LOST], state=[LOST, {"armed": False, "id": None, "failed": []}, armed])
    failed = fails(guard)
    assert str(failed) == (
        "node1: the change of the firewall was undone, because a new connection failed after the change"
        " (no route to host). The node was restored and is reachable. Look at the rules."
    )
    assert failed.undone is True
    # Tried once a second until 12 seconds before the timer.
    assert node.verbs == ["arm", *["confirm"] * 19, "state", "state"]


def test_confirmation_after_the_timeout_is_rejected(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    _, guard = guarded(confirm=[{"confirmed": False}], state=[{"armed": False, "id": None, "failed": []}])
    assert "after the change (the confirmation took longer than 30 seconds)" in str(fails(guard))


def test_failed_change_is_undone_immediately(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded(state=[{"armed": True, "id": "of another run", "failed": []}])

    def apply() -> None:
        raise NodeError("nft: syntax error", reachable=True)

    failed = fails(guard, apply)
    assert str(failed) == (
        "node1: the change of the firewall was undone, because the change failed on the node (nft: syntax error). The"
        " node was restored and is reachable. Look at the rules."
    )
    assert failed.undone is True
    assert node.verbs == ["arm", "undo", "state"]


def test_interrupted_change_is_undone(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded(undo=[LOST])  # the timer on the node undoes the change

    def apply() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.change(apply=apply)
    assert node.verbs == ["arm", "undo"]


def test_incomplete_undo_is_reported(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    _, guard = guarded(confirm=[LOST], state=[{"armed": True, "id": "x", "failed": ["nft ended with code 1"]}])
    failed = fails(guard)
    assert str(failed) == (
        "node1: the change of the firewall could not be undone completely, because nft ended with code 1. Reason for"
        " the undo: a new connection failed after the change (no route to host). The previous state is in"
        " /var/lib/muster/guard/firewall on the node."
    )
    assert failed.undone is False


def test_unreachable_node_is_reported_with_console_commands(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded(confirm=[LOST], state=[LOST])
    failed = fails(guard)
    assert str(failed) == (
        "node1: the node does not respond (no route to host). It should have undone the change of the firewall after 30"
        " seconds, because a new connection failed after the change (no route to host). Reboot the node from its"
        " console to restore the previous state from /var/lib/muster/guard/firewall."
    )
    assert failed.undone is False
    assert node.verbs.count("state") == 30 + PATIENCE - 19


def test_unconfirmed_change_of_an_earlier_run_is_undone_first(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    for answer, undone in ((DONE, True), ({"undone": False, "failed": []}, False)):
        node, guard = guarded(undo=[answer])
        assert guard.settle() is undone
        assert (node.asked, node.fresh) == ([("undo", {})], 0)
    _, guard = guarded(undo=[{"undone": True, "failed": ["/etc/x: read-only", "nft: gone"]}])
    with pytest.raises(GuardError) as failed:
        guard.settle()
    assert str(failed.value) == (
        "node1: an earlier change of the firewall was not confirmed, and undoing it failed: /etc/x: read-only; nft:"
        " gone. The previous state is in /var/lib/muster/guard/firewall on the node."
    )
    assert failed.value.undone is False


def test_change_can_be_undone_for_another_reason(guarded: Callable[..., tuple[Node, Guard]]) -> None:
    node, guard = guarded(state=[{"armed": False, "id": None, "failed": []}])
    change = guard.begin(apply=lambda: None)
    with pytest.raises(GuardError, match=r"was undone, because packets were lost\. The node was restored "):
        guard.take_back(change, "packets were lost")
    assert node.verbs == ["arm", "undo", "state"]
