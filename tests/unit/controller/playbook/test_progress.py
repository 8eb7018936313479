"""Progress lines of a running launch."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from muster_controller.playbook import way_out
from muster_controller.playbook.progress import ROOM, Progress


class Shown:
    """Stub of Ansible's display."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, message: str, **_how: Any) -> None:
        self.lines.append(way_out.shown(message))


def progress(show_rank: int | None = None) -> tuple[Progress, Shown]:
    shown = Shown()
    seen = Progress(shown, show_rank=show_rank)
    seen.live = False
    return seen, shown


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"step": 2, "steps": 2, "loss": 1.23456, "samples_per_second": 99.6},
            "  step 2/2   loss 1.235   100 samples/s",
        ),
        ({"step": 2, "steps": 2}, "  step 2/2"),
        ({"loss": None, "samples_per_second": "fast"}, "  step ?"),
        ({"loss": float("nan")}, "  step ?   loss nan"),
        ({"step": "\x1b[2J", "steps": [], "loss": 10**400}, "  step ?"),
    ],
)
def test_step_events_are_shown_as_lines(event: dict[str, Any], line: str) -> None:
    seen, shown = progress()
    seen.on_line(0, "event", json.dumps({"event": "step", **event}))
    seen.finish()
    assert shown.lines == [line]


def test_only_the_requested_rank_is_shown_and_its_rate_is_limited() -> None:
    seen, shown = progress(show_rank=1)
    seen.on_line(0, "stdout", "other")
    for number in range(50):
        seen.on_line(1, "stdout", f"line {number}")
    seen.finish()
    assert "  [rank 1] line 0" in shown.lines
    assert len(shown.lines) <= 41  # 40 lines per second; a second may end during the loop


def test_control_characters_in_rank_output_are_removed() -> None:
    seen, shown = progress(show_rank=0)
    for line in ("\x1b[2J\x1b[HHEALTHY", "\x1b]52;c;cm0gLXJm\x07", "{{ 7*7 }} \u202eyhtlaeh", "x" * 2000):
        seen.on_line(0, "stderr", line)
    seen.finish()
    assert shown.lines == [
        "  [rank 0] HEALTHY",
        "  [rank 0] ",
        "  [rank 0] {{ 7*7 }} <U+202E>yhtlaeh",
        f"  [rank 0] {'x' * 1000} ...",
    ]


class Blocked(Shown):
    """A terminal that accepts no output until its gate is open, as after Ctrl-S."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def display(self, message: str, **how: Any) -> None:
        assert self.gate.wait(300)
        super().display(message, **how)


def test_blocked_terminal_does_not_block_the_launch() -> None:
    shown = Blocked()
    seen = Progress(shown, show_rank=None)
    for number in range(ROOM + 100):
        seen.say(str(number))
    shown.gate.set()
    assert seen.aside.wait(300)
    seen.say("goes on")
    assert seen.aside.wait(300)
    assert len(shown.lines) <= ROOM + 3
    left_out = ROOM + 100 - (len(shown.lines) - 2)
    assert shown.lines[-2:] == [
        f"  ... {left_out} lines were skipped because the terminal did not accept output",
        "  goes on",
    ]
