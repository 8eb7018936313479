"""The watching of a launch by a controller that fails in every way: the launch goes on."""

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


def look(number: int, **differing: Any) -> dict[str, Any]:
    """The look at a node that has written so many lines."""
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


WELL = {"reason": "exit", "code": 0, "ended_at": 6.0}
STOPPED = {"unit_before": {"ActiveState": "inactive"}, "error": "", "leftovers": [], "clean": True}


def looks(last: dict[str, Any] | None = None) -> dict[tuple[str, str], list[Any]]:
    """Both nodes write five lines, and end well; last: or end so."""
    end = last or {"result": WELL}
    return {
        (name, verb): given
        for name in NODES
        for verb, given in (
            ("look", [*(look(number) for number in range(5)), look(5, **end)]),
            ("stop", [look(6, **STOPPED)]),
        )
    }


class Begun(Supervisor):
    """Of a launch that has been started already."""

    def prepare(self) -> None:
        pass

    def start(self) -> None:
        pass


class Supervised:
    """A supervisor of two nodes that answer at once, with what it said."""

    def __init__(self, folder: Path, table: dict[tuple[str, str], list[Any]], *, detached: bool) -> None:
        self.said: list[str] = []
        self.lines: list[tuple[Any, ...]] = []
        self.keeping = Keeping(self.said.append)
        self.logs = LogBook(folder / "launch", PLAN, self.hand_on, Redaction([]), self.keeping)
        self.supervisor = Begun(PLAN, {}, a_settings(detached=detached), self.logs, self.said.append)
        self.nodes = AnsweringNodes(table, reader(PLAN.ranks))
        self.supervisor.messages = self.nodes
        self.beside = AnsweringNodes(table)
        self.supervisor.snapshots.messages = self.beside

    def hand_on(self, rank: int, stream: str, line: str) -> None:
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
    return Supervised(tmp_path, looks(), detached=False)


def test_a_healthy_launch(leased: Supervised) -> None:
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    assert leased.asked("stop") == list(NODES)
    assert {payload["lease"] for _, verb, payload in leased.nodes.asked if verb == "look"} == {11.0}
    assert leased.said == []


@pytest.mark.parametrize("step", [7200.0, -7200.0])
def test_a_wall_clock_that_is_stepped_ends_nothing(
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
    "error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError(), RuntimeError("a fault of our own")]
)
def test_what_goes_wrong_with_an_answer_is_said_and_watching_goes_on(
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


def test_a_watcher_that_fails_ends_a_leased_launch_and_no_detached_one(
    leased: Supervised, attached: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_how: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("muster_controller.launch.watching.Watching.take", fail)
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert (record.decision.ending, leased.asked("stop")) == (Ending.INTERRUPTED, list(NODES))
    leased.logs.close()
    watcher = attached(looks())
    record = watcher.supervisor.attach()
    assert record.decision is not None
    assert (record.decision.ending, watcher.asked("stop")) == (Ending.DETACHED, [])
    assert watcher.said == ["the supervisor failed: SystemExit: 3"]


def test_who_comes_late_to_a_launch_that_another_has_ended_says_so(attached: Callable[..., Supervised]) -> None:
    gone = {"unit": {"LoadState": "not-found", "ActiveState": "inactive"}, "ranks": [], "logs": {}}
    table = looks()
    table["node1", "look"] = [look(0), look(1, **gone)]
    table["node2", "look"] = [look(0), look(1, result=WELL), look(2, **gone)]
    late = attached(table)
    record = late.supervisor.attach()
    assert record.decision is not None
    assert record.decision.ending is Ending.INTERRUPTED
    assert "another supervisor has collected it" in record.decision.text


def test_answers_of_no_use_end_nothing(leased: Supervised) -> None:
    leased.nodes.table["node1", "look"][1:2] = [{"unit": 7}, look(1, ranks={}, result=[], logs={"../x": 7})]
    leased.nodes.table["node2", "stop"] = [look(6, **{**STOPPED, "unit_before": 7})]
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FINISHED
    assert leased.said == [
        f"node1: invalid {what} in the response was ignored" for what in ("the result", "a rank", "a log")
    ]
    assert record.unseen == ["node2"]
    assert record.reports[1].lost_why == "unit_before: expected an object, got 7"


def test_interrupted_again_while_it_is_ended(leased: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C comes with the first answer to stop, and is answered; the stopping goes on."""
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


def test_an_interrupted_watcher_leaves_a_detached_launch_alone(attached: Callable[..., Supervised]) -> None:
    watcher = attached(looks())
    watcher.supervisor.interruption.signals = 1
    record = watcher.supervisor.attach()
    assert record.decision is not None
    assert (record.decision.ending, watcher.asked("stop")) == (Ending.DETACHED, [])


def test_ranks_are_looked_at_as_soon_as_the_launch_fails_and_before_it_is_stopped(
    leased: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_controller.launch.watching.GRACE", 0.1)
    order: list[str] = []
    for nodes in (leased.nodes, leased.beside):
        monkeypatch.setattr(nodes, "ask", noting(order, nodes.ask))
    leased.nodes.table.update(looks({"result": {**WELL, "code": 1}}))
    record = leased.supervisor.launch()
    assert record.decision is not None
    assert record.decision.ending is Ending.FAILED
    assert [verb for verb in order if verb != "look"] == ["snapshot", "snapshot", "stop", "stop"]
    assert set(leased.supervisor.evidence.silent) == set(NODES)


def noting(order: list[str], ask: Callable[..., None]) -> Callable[..., None]:
    def noted(node: str, verb: str, payload: dict[str, Any], **how: Any) -> None:
        order.append(verb)
        ask(node, verb, payload, **how)

    return noted
