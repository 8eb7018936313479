"""The diagnosis on the page: its lines, and who failed first and how it spread."""

from __future__ import annotations

from typing import Any

import diagnosed_samples
import samples
from muster.report import diagnosed


def section(count: int, ranks: int) -> dict[str, Any]:
    found = diagnosed.section(diagnosed_samples.kept(count, ranks))
    assert found is not None
    return found


def test_no_diagnosis_no_section() -> None:
    assert diagnosed.section(samples.healthy(2)) is None


def test_five_lines_by_their_names() -> None:
    found = section(4, 2)
    assert [line["name"] for line in found["lines"]] == ["What", "Where", "Why", "Not", "Type"]
    assert (found["word"], found["mark"]) == ("confirmed", "fail")
    assert found["candidates"][0]["open"] == ["kernel.oom: root alone may see the kernel log"]


def test_the_first_failure_is_the_first_in_order_and_the_others_follow() -> None:
    line = section(4, 2)["line"]
    assert len(line["rows"]) == 8
    first = next(row for row in line["rows"] if row["order"] == 1)
    assert (first["node"], first["who"], first["how"]) == ("node3", "rank 5", "own")
    orders = {row["who"]: row["order"] for row in line["rows"]}
    assert orders["rank 4"] < orders["rank 2"] < orders["rank 0"]
    assert all(float(row["until"]) <= 100 for row in line["rows"])


def test_a_stopped_rank_says_where_it_was() -> None:
    last = section(4, 2)["line"]["rows"][-1]
    assert (last["how"], last["order"]) == ("stopped", "")
    assert last["last"] == f"stopped (state T), in {diagnosed_samples.STUCK_IN}"
    assert 0 < float(last["said_at"]) < float(last["until"])


def test_of_many_ranks_those_are_shown_that_failed() -> None:
    line = section(80, 8)["line"]
    assert len(line["folded"]) == diagnosed.MOST_ROWS
    assert len(line["rows"]) == diagnosed.UNFOLDED
    assert line["left_out"] == 640 - diagnosed.MOST_ROWS
    assert any(row["order"] == 1 for row in line["rows"])
