"""What is asked of a node between two attempts of a launch, and what it answers (muster_node/launch/fit.py).

The answer is foreign input: what does not have its shape is of no use, and the node then counts as one that cannot be
looked at.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypedDict

from ..verdict import reading
from ..verdict.printable import ForeignText
from .unit import LAUNCH_ID

# It becomes a variable of the ranks: a path, and no other text.
A_PATH = reading.Limit(pattern=re.compile(r"/.{0,4095}"), most=4096, raw=True)


class FitRequest(TypedDict):
    """user: whose checkpoints are looked for. earlier: attempts that must have ended. gpus: whether they are used.

    checkpoints: a glob, "" for none; it begins in work_dir, unless it is absolute.
    """

    user: str
    earlier: list[str]
    gpus: bool
    checkpoints: str
    work_dir: str


class GpuUse(TypedDict):
    """uncorrected: memory errors since the driver was loaded."""

    index: reading.Count
    used_mib: reading.Count
    uncorrected: reading.Count


class Checkpoint(TypedDict):
    """A complete one. time: when it was written, by the clock of the file system."""

    path: Annotated[str, A_PATH]
    time: float


class Fit(TypedDict):
    """running: earlier attempts that have not ended there. gpu_error: why there is nothing about GPUs."""

    running: Annotated[list[Annotated[str, reading.Limit(pattern=LAUNCH_ID)]], reading.Limit(needed=True)]
    gpus: Annotated[list[GpuUse], reading.Limit(most=64, whole=True, needed=True)]
    gpu_error: Annotated[ForeignText, reading.Limit(instead=ForeignText(""))]
    checkpoint: Checkpoint | None


def read(data: Any) -> Fit:
    """Raises UnusableError."""
    fit, _ = reading.read(Fit, data)
    if fit["checkpoint"] and not fit["checkpoint"]["path"].isprintable():
        fit["checkpoint"] = None
    return fit
