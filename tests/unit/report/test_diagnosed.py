"""The diagnosis in the report: its lines, and the timeline of failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosed_samples
import samples
from muster.report import diagnosed


def section(count: int, ranks: int) -> dict[str, Any]:
    found = diagnosed.section(diagnosed_samples.kept(count, ranks))
    assert found is not None
    return found


def test_report_without_a_diagnosis_has_no_diagnosis_section() -> None:
    assert diagnosed.section(samples.healthy(2)) is None


def test_diagnosis_has_five_named_lines() -> None:
    found = section(4, 2)
    assert [line["name"] for line in found["lines"]] == ["Symptom", "Where", "Cause", "Ruled out", "Next step"]
    assert (found["word"], found["mark"]) == ("confirmed", "fail")
    assert found["candidates"][0]["open"] == ["kernel.oom: requires root"]


def test_failures_are_numbered_by_time() -> None:
    line = section(4, 2)["line"]
    assert len(line["rows"]) == 8
    first = next(row for row in line["rows"] if row["order"] == 1)
    assert (first["node"], first["who"], first["how"]) == ("node3", "rank 5", "own")
    orders = {row["who"]: row["order"] for row in line["rows"]}
    assert orders["rank 4"] < orders["rank 2"] < orders["rank 0"]
    assert all(float(row["until"]) <= 100 for row in line["rows"])


def test_stack_of_a_stopped_rank_is_shown() -> None:
    last = section(4, 2)["line"]["rows"][-1]
    assert (last["how"], last["order"]) == ("stopped", "")
    assert last["last"] == f"stopped (state T), in {diagnosed_samples.STUCK_IN}"
    assert 0 < float(last["said_at"]) < float(last["until"])


def test_failed_ranks_come_first_among_many() -> None:
    line = section(80, 8)["line"]
    assert len(line["folded"]) == diagnosed.MOST_ROWS
    assert len(line["rows"]) == diagnosed.UNFOLDED
    assert line["left_out"] == 640 - diagnosed.MOST_ROWS
    assert [(row["node"], row["who"], row["how"]) for row in line["rows"][:3]] == [
        ("node3", "rank 17", "own"),
        ("node80", "rank 639", "stopped"),
        ("node3", "ranks 16, 18-23", "follows"),
    ]
    assert line["rows"][3]["who"] == "ranks 8-15"
    # One row per node, and one more for each node whose ranks have two different outcomes.
    assert line["more"] == 82 - diagnosed.UNFOLDED
    assert line["folded"][0]["who"] == "rank 17"


def test_first_failure_is_the_first_row_even_on_the_last_node() -> None:
    kept = diagnosed_samples.kept(64, 8)
    symptoms = [{**one, "victim": one["rank"] != 510} for one in kept.diagnosis["symptoms"]]
    found = diagnosed.section(replace(kept, diagnosis={**kept.diagnosis, "symptoms": symptoms}))
    assert found
    assert {found["line"][part][0]["who"] for part in ("rows", "folded")} == {"rank 510"}


def test_same_error_on_all_ranks_of_a_node_is_shown_in_one_row() -> None:
    kept = diagnosed_samples.kept(8, 8)
    symptoms = [{**one, "victim": False, "line": "SyntaxError"} for one in kept.diagnosis["symptoms"]]
    found = diagnosed.section(replace(kept, diagnosis={**kept.diagnosis, "symptoms": symptoms}))
    assert found
    assert [row["who"] for row in found["line"]["rows"] if row["how"] == "own"][:2] == ["ranks 16-23", "ranks 8-15"]
    assert len(found["line"]["rows"]) == 9
