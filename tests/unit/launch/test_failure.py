"""Every file in cases/failure is the end of a launch, as all of its nodes reported it, and what must be read from it.

reports: by node, what differs from a node that was reached. expect.failures: the cause first, then the others in order
of time. expect.evidence: what is shown of the cause, where that is checked. cases/traceback: a rank's stderr, and its
last exception.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import failure
from muster.launch.failure import Failure, NodeReport

LATER = 1000.0  # a stop after everything else


def told(one: Failure) -> str:
    return f"{one.where}: {one.kind}{' (follows)' if one.cascade else ''}: {one.summary}"


@cases(__file__, "failure")
def test_failure(case: dict[str, Any]) -> None:
    reports = [NodeReport(node, **given) for node, given in case["reports"].items()]
    cause, others = failure.first_failure(reports, case.get("stop_began", LATER))
    assert [told(one) for one in ([cause] if cause else []) + others] == case["expect"]["failures"]
    if "evidence" in case["expect"]:
        assert cause is not None
        assert cause.traceback == case["expect"]["evidence"].rstrip()


@cases(__file__, "traceback")
def test_traceback(case: dict[str, Any]) -> None:
    traceback = failure.last_traceback(case["stderr"])
    assert {
        "line": failure.exception_line(traceback),
        "follows": bool(traceback) and failure.is_cascade(traceback),
        "traceback": traceback,
    } == {**case["expect"], "traceback": case["expect"]["traceback"].rstrip("\n")}
