"""Display of slow tasks, with a stub of the clock and the timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from ansible.utils.display import Display

from muster.road.waiting import NodeActivity
from muster_controller.playbook import waiting, way_out
from muster_controller.playbook.way_out import PrintableDisplay

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock, and timers that run when the clock passes their time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Clock.Timer] = []

    class Timer:
        def __init__(self, at: float, act: Callable[[int], None], turn: int) -> None:
            self.at, self.act, self.turn = at, act, turn
            self.daemon = self.started = self.cancelled = False

        def start(self) -> None:
            self.started = True

        def cancel(self) -> None:
            self.cancelled = True

    def timer(self, seconds: float, act: Callable[[int], None], arguments: list[int]) -> Clock.Timer:
        self.timers.append(Clock.Timer(self.now + seconds, act, *arguments))
        return self.timers[-1]

    def go(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [one for one in self.timers if one.started and not one.cancelled and one.at <= end]:
            first = min(due, key=lambda one: one.at)
            self.timers.remove(first)
            self.now = first.at
            first.act(first.turn)
        self.now = end


class Terminal:
    """The lines below each other, and the drawn lines at the end."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.drawn: list[str] = []
        self.activities: dict[str, NodeActivity] = {}

    def display(self, text: str, **_: Any) -> None:
        self.drawn = []
        self.lines.append(text)

    def draw(self, lines: list[str]) -> None:
        self.drawn = lines

    def note_activity(self, node: str, activity: NodeActivity | None) -> None:
        PrintableDisplay.note_activity(cast("Any", self), node, activity)

    _final_q = None


class Run:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.terminal = Clock(), Terminal()
        monkeypatch.setattr(waiting, "Timer", self.clock.timer)
        monkeypatch.setattr(waiting, "monotonic", lambda: self.clock.now)
        self.waiting = waiting.Waiting(cast("Any", self.terminal))

    def begin(self, *nodes: str, **how: bool) -> None:
        self.waiting.begin(lambda: None, **{"shown": True, "names": True, **how})
        for node in nodes:
            self.waiting.add(node)


@pytest.fixture(params=[False, True], ids=["lines", "terminal"])
def live(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(waiting, "terminal_width", lambda: 80 if request.param else 0)
    monkeypatch.setattr(waiting, "accepts_output", lambda: True)
    return bool(request.param)


def test_slow_task_shows_its_nodes(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.begin("node1", "node2", "localhost")
    run.clock.go(14.9)
    assert (run.terminal.lines, run.terminal.drawn) == ([], [])
    run.clock.go(0.2)
    first = "  waiting for node1, node2: 0:15"
    assert (run.terminal.lines, run.terminal.drawn) == (([], [first]) if live else ([first], []))
    run.waiting.remove("node1")
    run.terminal.activities["node2"] = NodeActivity("apt: unpacking 1 of 2 packages", 0.5)
    run.clock.go(60)
    if live:
        bar = f"  node2 [{'#' * 10}{'.' * 10}] apt: unpacking 1 of 2 packages"
        assert run.terminal.drawn == [bar, "  waiting for node2: 1:15"]
    else:
        assert run.terminal.lines == [first, "  waiting for node2: 1:15 (node2: apt: unpacking 1 of 2 packages)"]
    run.waiting.remove("node2")
    assert run.terminal.activities == {}
    run.waiting.end()
    seen = list(run.terminal.lines)
    run.clock.go(600)
    assert (run.terminal.lines, run.terminal.drawn) == (seen, [])


def test_fast_tasks_show_nothing_and_late_timers_do_nothing(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    for _ in range(10):
        run.begin("node1")
        run.clock.go(14)
    late = run.clock.timers[-1]
    run.waiting.end()
    run.clock.now += 100
    late.act(late.turn)
    assert (run.terminal.lines, run.terminal.drawn) == ([], [])


def test_tasks_with_own_progress_show_only_their_title(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run, titles = Run(monkeypatch), []
    run.waiting.begin(lambda: titles.append("title"), shown=False, names=True)
    run.clock.go(300)
    assert titles == ["title"]
    assert (run.terminal.lines, run.terminal.drawn) == ([], [])


def test_task_that_runs_once_names_no_node(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.begin("node1", names=False)
    run.clock.go(15.5)
    assert [*run.terminal.lines, *run.terminal.drawn] == ["  running: 0:15"]


def test_stopped_terminal_is_not_written_to(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.begin("node1")
    monkeypatch.setattr(waiting, "accepts_output", lambda: False)
    run.clock.go(100)
    assert (run.terminal.lines, run.terminal.drawn) == ([], [])
    monkeypatch.setattr(waiting, "accepts_output", lambda: True)
    run.clock.go(60)
    assert [*run.terminal.lines, *run.terminal.drawn] != []


def test_next_output_replaces_drawn_lines(capsys: pytest.CaptureFixture[str]) -> None:
    way_out.use()
    display = Display()
    assert isinstance(display, PrintableDisplay)
    display.draw(["one", "two\x1b[2J"])
    display.draw(["three"])
    display.display("next")
    display.display("last")
    erased = "\r\x1b[2K"
    assert capsys.readouterr().out == f"{erased}one\ntwo{erased}\x1b[1A\x1b[2Kthree{erased}next\nlast\n"
