"""The ways in which each drill is run: whose launch it is, and what runs its ranks."""

from __future__ import annotations

import pytest

USER = "ada"  # whose user launches have no root
WAYS = {  # whose launch it is, and its launch_command
    "administrators": ("", []),
    "own": (USER, []),
    "accelerate": ("", ["accelerate", "launch"]),
    "own-accelerate": (USER, ["accelerate", "launch"]),
}
# An administrator's launch without PyTorch: a stub of torchrun, and ranks that count steps over sockets.
LIGHT = "light"


def in_all_ways(*quick: str, pipeline: str = "") -> pytest.MarkDecorator:
    """Run a drill in each way.

    quick: the ways that the stage drills runs; the others are slow. What breaks and is found there is broken and found
    alike in the others. pipeline: the way in which the stage pipeline runs it.
    """
    assert {*quick, pipeline} <= {*WAYS, LIGHT, ""}, quick
    marks = {way: pytest.mark.slow for way in WAYS if way not in quick}
    if pipeline:
        marks[pipeline] = pytest.mark.pipeline
    ways = [*WAYS, LIGHT] if pipeline == LIGHT else [*WAYS]
    return pytest.mark.parametrize(
        "drill", [pytest.param(way, marks=marks.get(way, ())) for way in ways], indirect=True
    )
