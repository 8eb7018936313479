"""Every case contains the facts of a finished run, and its expected last line."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.report.last_line import RunEnding, Stop, last_line


@cases(__file__, "last_line")
def test_last_line_of_a_run_matches_the_case(case: dict[str, Any]) -> None:
    expected = (case.pop("status"), case.pop("line"))
    case["failures"] = {node: Stop(*stop) for node, stop in case.get("failures", {}).items()}
    assert last_line(RunEnding(**case)) == expected
