"""Every case is how a run ended, and the line that its user reads last."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.report.last_line import RunEnding, last_line


@cases(__file__, "last_line")
def test_the_last_line(case: dict[str, Any]) -> None:
    expected = (case.pop("status"), case.pop("line"))
    assert last_line(RunEnding(**case)) == expected
