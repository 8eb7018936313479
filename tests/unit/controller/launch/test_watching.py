"""Watching a launch: failures of the controller do not end it."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan, a_settings
from muster.launch.answers import reader
from muster.launch.endings import Ending
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch.logs import LogBook
from muster_controller.launch.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = ("node1", "node2")
PLAN = a_plan(entry={"script": None})


def status(number: int, **differing: Any) -> dict[str, Any]:
    """Return the status of a node that has written so many lines."""
    text = f"step {number}\n"
    return {
        "unit": {"LoadState": "loaded", "ActiveState": "active", "Result": "success"},
        "result": None,
        "ranks": [],
        "errors": {},
        "notes": [],
        "disk": {"path": "/run", "free": 10**9, "total": 10**9, "inodes_free": None, "read_only": False},
        "clock": 5.0,
        "logs": {
            "0/stdout": {"begin": 7 * number, "gap": 0, "offset": 7 * number + 7, "text": text, "more": False},
        },
        **differing,
    }


SUCCESS = {"reason": "exit", "code": 0, "ended_at": 6.0}
STOPPED = {"unit_before": {"ActiveState": "inactive"}, "error": "", "leftovers": [], "clean": True}


def answers(last: dict[str, Any] | None = None) -> dict[tuple[str, str], list[Any]]:
    """Return the answers of two nodes that write five lines each. last: the final status (default: success)."""
    end = last or {"result": SUCCESS}
    return {
        (name, verb): given
        for name in NODES
        for verb, given in (
            ("look", [*(status(number) for number in range(5)), status(5, **end)]),
            ("stop", [status(6, **STOPPED)]),
        )
    }


class StartedSupervisor(Supervisor):
    def prepare(self) -> None:
        pass

    def start(self) -> None:
        pass


class Supervised:
    """A supervisor whose two nodes answer immediately, with its messages."""

    def __init__(self, folder: Path, table: dict[tuple[str, str], list[Any]], *, detached: bool) -> None:
        self.said: list[str] = []
        self.lines: list[tuple[Any, ...]] = []
        self.keeping = Keeping(self.said.append)
        self.logs = LogBook(folder / "launch", PLAN, self.pass_on, Redaction([]), self.keeping)
        self.supervisor = StartedSupervisor(PLAN, {}, a_settings(detached=detached), self.logs, self.said.append)
        self.nodes = AnsweringNodes(table, reader(PLAN.ranks))
        self.supervisor.messages = self.nodes
        self.beside = AnsweringNodes(table)
        self.supervisor.snapshots.messages = self.beside

    def pass_on(self, rank: int, stream: str, line: str) -> None:
        self.on_line(rank, stream, line)

    def on_line(self, *line: Any) -> None:
        self.lines.append(line)

    def asked(self, verb: str) -> list[str]:
        return [name for name, sent, _ in self.nodes.asked if sent == verb]


@pytest.fixture
def attached(tmp_path: Path) -> Callable[..., Supervised]:
    def make(table: dict[tuple[str, str], list[Any]]) -> Supervised:
        return Supervised(tmp_path, table, detached=True)

    return make


@pytest.fixture
def leased(tmp_path: Path) -> Supervised:
    return Supervised(tmp_path, answers(), detached=False)


def test_healthy_launch_finishes_without_messages(leased: Supervised) -> None:
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    assert leased.asked("stop") == list(NODES)
    assert {payload["lease"] for _, verb, payload in leased.nodes.asked if verb == "look"} == {11.0}
    assert leased.said == []


@pytest.mark.parametrize("step", [7200.0, -7200.0])
def test_jump_of_the_wall_clock_does_not_end_the_launch(
    leased: Supervised, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    real, steps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + step * (next(steps) % 3))
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    assert leased.said == []
    assert 0 <= record.cleaned - record.began < 300


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError(), RuntimeError("a defect")]
)
def test_error_in_an_answer_is_reported_and_watching_continues(
    leased: Supervised, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def on_line(*_line: Any) -> None:
        raise error

    monkeypatch.setattr(leased, "on_line", on_line)
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    why = f"the response could not be processed ({type(error).__name__}: {error})"
    assert leased.said == [f"node1: {why}", f"node2: {why}"]


def test_failed_supervisor_stops_only_a_launch_with_a_lease(
    leased: Supervised, attached: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_how: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("muster_controller.launch.watching.Watching.take", fail)
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert (record.decision.ending, leased.asked("stop")) == (Ending.INTERRUPTED, list(NODES))
    leased.logs.close()
    watcher = attached(answers())
    record = watcher.supervisor.attach()
    assert record.decision is not None
    assert (record.decision.ending, watcher.asked("stop")) == (Ending.DETACHED, [])
    assert watcher.said == ["the supervisor failed: SystemExit: 3"]


def test_attaching_to_a_launch_ended_by_another_supervisor_is_reported(attached: Callable[..., Supervised]) -> None:
    gone = {"unit": {"LoadState": "not-found", "ActiveState": "inactive"}, "ranks": [], "logs": {}}
    table = answers()
    table["node1", "look"] = [status(0), status(1, **gone)]
    table["node2", "look"] = [status(0), status(1, result=SUCCESS), status(2, **gone)]
    late = attached(table)
    record = late.supervisor.attach()
    assert record.decision is not None
    assert record.decision.ending is Ending.INTERRUPTED
    assert "another supervisor collected it" in record.decision.text


def test_invalid_answers_do_not_end_the_launch(leased: Supervised) -> None:
    leased.nodes.table["node1", "look"][1:2] = [{"unit": 7}, status(1, ranks={}, result=[], logs={"../x": 7})]
    leased.nodes.table["node2", "stop"] = [status(6, **{**STOPPED, "unit_before": 7})]
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    assert leased.said == [
        f"node1: invalid {what} in the response was ignored" for what in ("the result", "a rank", "a log")
    ]
    assert record.unseen == ["node2"]
    assert record.reports[1].lost_why == "unit_before: expected an object, got 7"


def test_second_ctrl_c_while_stopping_prints_a_message(leased: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C arrives while the nodes are stopping. A message acknowledges it, and the stop continues."""
    interruption = leased.supervisor.interruption
    interruption.signals = 1
    real = leased.nodes.ask

    def ask(node: str, verb: str, payload: dict[str, Any], **how: Any) -> None:
        if verb == "stop" and node == "node2":
            interruption.signals += 1
        real(node, verb, payload, **how)

    monkeypatch.setattr(leased.nodes, "ask", ask)
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert (record.decision.ending, leased.asked("stop")) == (Ending.INTERRUPTED, list(NODES))
    assert [sentence.partition(",")[0] for sentence in leased.said] == [
        "SIGTERM was sent to the ranks",
        "Still stopping 20260101-120000-abcd on its nodes",
    ]
    assert not record.unseen


def test_interrupted_supervisor_does_not_stop_a_detached_launch(attached: Callable[..., Supervised]) -> None:
    watcher = attached(answers())
    watcher.supervisor.interruption.signals = 1
    record = watcher.supervisor.attach()
    assert record.decision is not None
    assert (record.decision.ending, watcher.asked("stop")) == (Ending.DETACHED, [])


def test_snapshots_are_taken_after_a_failure_and_before_the_stop(
    leased: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_controller.launch.watching.GRACE", 0.1)
    order: list[str] = []
    for nodes in (leased.nodes, leased.beside):
        monkeypatch.setattr(nodes, "ask", recording(order, nodes.ask))
    leased.nodes.table.update(answers({"result": {**SUCCESS, "code": 1}}))
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FAILED
    assert [verb for verb in order if verb != "look"] == ["snapshot", "snapshot", "stop", "stop"]
    assert set(leased.supervisor.evidence.silent) == set(NODES)


def recording(order: list[str], ask: Callable[..., None]) -> Callable[..., None]:
    def noted(node: str, verb: str, payload: dict[str, Any], **how: Any) -> None:
        order.append(verb)
        ask(node, verb, payload, **how)

    return noted
