"""Every file in cases/traceback contains the end of a rank's stderr, and the expected exception."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import tracebacks


@cases(__file__, "traceback")
def test_last_traceback_is_found_in_stderr(case: dict[str, Any]) -> None:
    traceback = tracebacks.last_traceback(case["stderr"])
    assert {
        "line": tracebacks.exception_line(traceback),
        "follows": bool(traceback) and tracebacks.is_cascade(traceback),
        "traceback": traceback,
    } == {**case["expect"], "traceback": case["expect"]["traceback"].rstrip("\n")}
