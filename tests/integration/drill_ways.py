"""The variants of each drill: kind of launch and launch command."""

from __future__ import annotations

import pytest

USER = "ada"  # the user of user launches (no root)
WAYS = {  # user (empty: administrator launch) and launch_command
    "administrators": ("", []),
    "own": (USER, []),
    "accelerate": ("", ["accelerate", "launch"]),
    "own-accelerate": (USER, ["accelerate", "launch"]),
}
# An administrator launch without PyTorch: a torchrun stub, and ranks that count steps over sockets.
LIGHT = "light"


def in_variants(*quick: str, pipeline: str = "") -> pytest.MarkDecorator:
    """Run a drill in each variant.

    quick: variants that the stage `drills` runs. The other variants are slow and cover the same faults. pipeline:
    variant that the stage `pipeline` runs.
    """
    assert {*quick, pipeline} <= {*WAYS, LIGHT, ""}, quick
    marks = {way: pytest.mark.slow for way in WAYS if way not in quick}
    if pipeline:
        marks[pipeline] = pytest.mark.pipeline
    ways = [*WAYS, LIGHT] if pipeline == LIGHT else [*WAYS]
    return pytest.mark.parametrize(
        "drill", [pytest.param(way, marks=marks.get(way, ())) for way in ways], indirect=True
    )
