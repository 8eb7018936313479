"""Output lines and events of ranks, which are limited in size for any output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cases import cases
from muster.launch import events, lines
from muster.launch.events import Events
from muster.launch.lines import Lines


@cases(__file__, "lines")
def test_output_pieces_are_split_into_lines(case: dict[str, Any]) -> None:
    seen = Lines()
    assert [line for piece in case["pieces"] for line in seen.take(piece)] == case["lines"]


def test_only_the_beginning_of_an_endless_line_is_kept() -> None:
    seen = Lines()
    for _ in range(100):
        assert seen.take("x" * lines.MOST) == []
        assert len(seen.begun) == lines.MOST
    assert seen.take("\nshort\n") == [f"{'x' * lines.MOST} ... {99 * lines.MOST} characters left out", "short"]


@pytest.mark.parametrize(
    "text",
    ["{broken", "[1]", '{"a":' * 30 + "1" + "}" * 30, "[" * 60_000, '{"a": ' + "9" * 5000 + "}", '"text"'],
)
def test_invalid_event_is_ignored(text: str) -> None:
    assert Events().take(events.MARK + text, 0, "node1") is None


def test_event_is_printable_and_includes_its_rank_and_node() -> None:
    text = json.dumps({"e\x1b[2J": ["\ud800{{ 7*7 }}", 1, None], "from_rank": 7, "from_node": "node9"})
    expected = {"e": ["<U+D800>{{ 7*7 }}", 1, None], "from_rank": 3, "from_node": "node1"}
    assert Events().take(events.MARK + text, 3, "node1") == expected


def test_output_flood_from_one_rank_does_not_displace_other_ranks() -> None:
    seen = Events()
    for _ in range(events.MOST_OF_RANK + 7):
        assert seen.take('@muster {"event": "step"}', 0, "node1")
    assert seen.take('@muster {"event": "hello"}', 1, "node2")
    assert (len(seen.kept), seen.left_out) == (events.MOST_OF_RANK + 1, 7)


def test_total_size_of_events_is_limited() -> None:
    seen = Events()
    line = events.MARK + json.dumps({"event": "x" * 60_000})
    for rank in range(600):
        seen.take(line, rank, "node1")
    assert len(seen.kept) == events.MOST // len(line)
    assert seen.left_out == 600 - len(seen.kept)
