"""Every file in cases/comparison contains launches of the same training, the expected table and the summary."""

from __future__ import annotations

from typing import Any

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import comparison


def launch(given: dict[str, Any]) -> comparison.ComparedLaunch:
    plan = a_plan(given["nodes"], backend=given["backend"])
    # A summary of a rank other than 0 is ignored.
    other = {"event": "summary", "from_rank": 1, "samples_per_second": 1}
    return comparison.ComparedLaunch(
        plan, [{"event": "step"}, other, {"event": "summary", "from_rank": 0, **given["summary"]}]
    )


@cases(__file__, "comparison")
def test_comparison_of_launches_matches_the_case(case: dict[str, Any]) -> None:
    compared = comparison.compare([launch(given) for given in case["launches"]], case.get("skipped", ()))
    assert comparison.sentence(compared) == case["sentence"]
    assert comparison.table(compared) == case["table"]
