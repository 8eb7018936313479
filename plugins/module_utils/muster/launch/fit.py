"""What is asked of a node between two attempts of a launch, and what it answers (muster_node/launch/fit.py).

The answer is foreign input: what does not have its shape is of no use, and the node then counts as one that cannot be
looked at.
"""

from __future__ import annotations

from typing import Any, TypedDict

from .answers import UnusableError, number, whole, word
from .unit import LAUNCH_ID

MOST_GPUS = 64
MOST_PATH = 4096
MOST_RUNNING = 100


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

    index: int
    used_mib: int
    uncorrected: int


class Checkpoint(TypedDict):
    """A complete one. time: when it was written, by the clock of the file system."""

    path: str
    time: float


class Fit(TypedDict):
    """running: earlier attempts that have not ended there. gpu_error: why there is nothing about GPUs."""

    running: list[str]
    gpus: list[GpuUse]
    gpu_error: str
    checkpoint: Checkpoint | None


def read(data: Any) -> Fit:
    """Raises UnusableError."""
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("gpus"), list)
        or not isinstance(data.get("running"), list)
    ):
        raise UnusableError("it is no look between two attempts")
    return {
        "running": [one for one in data["running"][:MOST_RUNNING] if isinstance(one, str) and LAUNCH_ID.match(one)],
        "gpus": [gpu(one) for one in data["gpus"][:MOST_GPUS]],
        "gpu_error": word(data.get("gpu_error"), 400) or "",
        "checkpoint": checkpoint(data.get("checkpoint")),
    }


def gpu(given: Any) -> GpuUse:
    known = given if isinstance(given, dict) else {}
    index, used, errors = (whole(known.get(name)) for name in ("index", "used_mib", "uncorrected"))
    if index is None or used is None or errors is None:
        raise UnusableError("a GPU of it has no numbers")
    return {"index": index, "used_mib": used, "uncorrected": errors}


def checkpoint(given: Any) -> Checkpoint | None:
    """It becomes a variable of the ranks: a path, and no other text."""
    if not isinstance(given, dict):
        return None
    path, time = word(given.get("path"), MOST_PATH), number(given.get("time"))
    if path is None or time is None or not path.startswith("/") or not path.isprintable():
        return None
    return {"path": path, "time": time}
