"""What a person sees of a running launch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster_controller.progress import Progress


class Shown:
    """Stands in for Ansible's display."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, message: str, **_how: Any) -> None:
        self.lines.append(message)


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
    ],
)
def test_steps_are_shown(event: dict[str, Any], line: str) -> None:
    seen, shown = progress()
    seen.on_line(0, "event", json.dumps({"event": "step", **event}))
    assert shown.lines == [line]


def test_only_the_requested_rank_is_shown_and_no_flood() -> None:
    seen, shown = progress(show_rank=1)
    seen.on_line(0, "stdout", "other")
    for number in range(50):
        seen.on_line(1, "stdout", f"line {number}")
    assert "  [rank 1] line 0" in shown.lines
    assert len(shown.lines) <= 41  # a second may end meanwhile
