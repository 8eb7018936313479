"""Validate the answer about the availability of a node between two attempts of a launch (muster_node/launch/fit.py).

The answer is untrusted input. A node without a valid answer is treated as a node that cannot be checked.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypedDict

from ..verdict import reading
from ..verdict.printable import ForeignText
from .unit import LAUNCH_ID

# The path becomes an environment variable of the ranks.
A_PATH = reading.Limit(pattern=re.compile(r"/.{0,4095}"), most=4096, raw=True)


class FitRequest(TypedDict):
    """user: owner of the checkpoints. earlier: attempts that must have ended. gpus: whether the launch uses GPUs.

    checkpoints: glob pattern of the checkpoints, relative to work_dir unless it is absolute; "" for no checkpoints.
    """

    user: str
    earlier: list[str]
    gpus: bool
    checkpoints: str
    work_dir: str


class GpuUse(TypedDict):
    """The use of a GPU. uncorrected: number of uncorrected memory errors since the driver was loaded."""

    index: reading.Count
    used_mib: reading.Count
    uncorrected: reading.Count


class Checkpoint(TypedDict):
    """A complete checkpoint. time: when it was written, according to the file system."""

    path: Annotated[str, A_PATH]
    time: float


class Fit(TypedDict):
    """The answer of a node.

    running: earlier attempts that are still running on the node. gpu_error: why GPU data is missing.
    """

    running: Annotated[list[Annotated[str, reading.Limit(pattern=LAUNCH_ID)]], reading.Limit(needed=True)]
    gpus: Annotated[list[GpuUse], reading.Limit(most=64, whole=True, needed=True)]
    gpu_error: Annotated[ForeignText, reading.Limit(instead=ForeignText(""))]
    checkpoint: Checkpoint | None


def read(data: Any) -> Fit:
    """Return the validated answer. Raises UnusableError."""
    fit, _ = reading.read(Fit, data)
    if fit["checkpoint"] and not fit["checkpoint"]["path"].isprintable():
        fit["checkpoint"] = None
    return fit
