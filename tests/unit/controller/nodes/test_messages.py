"""Messages to many nodes: limited concurrency, and errors that affect only their node."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

from muster_controller.nodes import messages as module
from muster_controller.nodes.connection import NodeConnection
from muster_controller.nodes.messages import OPENED_AT_ONCE, Messages
from muster_controller.nodes.program import NodeProgram

if TYPE_CHECKING:
    import pytest


class Opening:
    """Stub of a connection plugin: counts connections that open at the same time until the gate is open."""

    become = None
    lock = threading.Lock()
    now = most = 0

    def __init__(self, gate: threading.Event, full: threading.Event) -> None:
        self.gate = gate
        self.full = full

    def exec_command(self, _command: str, **_how: Any) -> tuple[int, bytes, bytes]:
        with self.lock:
            Opening.now += 1
            Opening.most = max(Opening.now, Opening.most)
            if Opening.now == OPENED_AT_ONCE:
                self.full.set()
        assert self.gate.wait(300)
        with self.lock:
            Opening.now -= 1
        return 0, b'{"uid": 0}\n', b""


def test_number_of_connections_opened_at_once_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENING", 300.0)
    gate, full = threading.Event(), threading.Event()
    names = [f"node{number}" for number in range(OPENED_AT_ONCE + 20)]
    plugin: Any = Opening(gate, full)
    messages = Messages({name: NodeConnection(name, plugin, "python3") for name in names}, NodeProgram("launch"))
    messages.open()
    for name in names:
        messages.ask(name, "identity", {})
    assert full.wait(300)
    gate.set()
    answers = messages.gather("identity", names, 300.0, lambda _answer: None)
    assert {name: answer.data for name, answer in answers.items()} == {name: {"uid": 0} for name in names}
    assert Opening.most == OPENED_AT_ONCE


def test_hanging_connections_delay_other_connections_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENING", 0.01)
    gate, full = threading.Event(), threading.Event()
    names = [f"node{number}" for number in range(OPENED_AT_ONCE)]
    hanging: Any = Opening(gate, full)
    connections = {name: NodeConnection(name, hanging, "python3") for name in names}
    open_gate = threading.Event()
    open_gate.set()
    another: Any = Opening(open_gate, full)
    messages = Messages({**connections, "late": NodeConnection("late", another, "python3")}, NodeProgram("launch"))
    messages.open()
    for name in (*names, "late"):
        messages.ask(name, "identity", {})
    answer = messages.next(300.0)
    assert answer is not None
    assert answer.node == "late"
    gate.set()


class Failing:
    become = None

    def __init__(self, error: Exception) -> None:
        self.error = error

    def exec_command(self, _command: str, **_how: Any) -> tuple[int, bytes, bytes]:
        raise self.error


def test_error_names_the_controller_limit_that_was_reached() -> None:
    plugin: Any = Failing(OSError(errno.EMFILE, "Too many open files"))
    messages = Messages({"node1": NodeConnection("node1", plugin, "python3")}, NodeProgram("launch"))
    messages.open()
    messages.ask("node1", "identity", {})
    answer = messages.next(300.0)
    assert answer is not None
    assert answer.error.startswith("the controller's limit of ")


def test_errors_are_shown_as_one_printable_line() -> None:
    plugin: Any = Failing(RuntimeError("\x1b[2J\x1b]52;c;eA==\x07no\nroute"))
    messages = Messages({"node1": NodeConnection("node1", plugin, "python3")}, NodeProgram("launch"))
    messages.open()
    messages.ask("node1", "identity", {})
    answer = messages.next(300.0)
    assert answer is not None
    assert answer.error == "RuntimeError: no route"
