"""Launches of the same training compared: the table, and the sentence. cases/comparison."""

from __future__ import annotations

from typing import Any

from cases import cases
from launch_shapes import a_plan
from muster.acceptance import comparison


def launch(given: dict[str, Any]) -> comparison.ComparedLaunch:
    plan = a_plan(given["nodes"], backend=given["backend"])
    # A rank other than the first may say the same: it does not count.
    other = {"event": "summary", "from_rank": 1, "samples_per_second": 1}
    return comparison.ComparedLaunch(
        plan, [{"event": "step"}, other, {"event": "summary", "from_rank": 0, **given["summary"]}]
    )


@cases(__file__, "comparison")
def test_comparison(case: dict[str, Any]) -> None:
    compared = comparison.compare([launch(given) for given in case["launches"]], case.get("skipped", ()))
    assert comparison.sentence(compared) == case["sentence"]
    assert comparison.table(compared) == case["table"]
