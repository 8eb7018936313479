"""In which ways each drill is run: whose launch it is, and what runs its ranks."""

from __future__ import annotations

import pytest

USER = "ada"  # in whose own launch there is no root
WAYS = {  # whose it is, and its launch_command
    "administrators": ("", []),
    "own": (USER, []),
    "accelerate": ("", ["accelerate", "launch"]),
    "own-accelerate": (USER, ["accelerate", "launch"]),
}


def in_all_ways(*quick: str) -> pytest.MarkDecorator:
    """Run a drill in each way. The ways named here are those of continuous integration; what breaks and is found there
    is broken and found alike in the others."""
    assert set(quick) <= set(WAYS), quick
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "drill", [pytest.param(way, marks=() if way in quick else slow) for way in WAYS], indirect=True
    )
