"""Logs of earlier launches: the newest are kept, up to a number and a size. What a job wrote is not touched."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from ..tools import files, process, trees
from . import state
from .kept import ENDED, PLAN

Json = dict[str, Any]

SECONDS = 5.0  # what is not removed by then is so at the next start
MEASURED = 2.0  # seconds, before that, for the sizes; what is not counted by then takes nothing away
OF_A_RUN = {
    "logs",
    "script",
    "project",
    PLAN,
    ENDED,
}  # where there is anything else, an earlier version of Muster had the job write there
HALF_GONE = ".pruned."  # how the name begins of a folder that is being removed


class Run(NamedTuple):
    """The folder of an earlier launch. began: seconds on the node's clock. size: bytes on the disk."""

    launch_id: str
    began: float
    size: int


def prune(run_root: str, keep: int, keep_bytes: int) -> Json:
    """Remove what is too much, beside the launch that is about to start; return {pruned: ids, bytes}."""
    pruned, size = [], 0
    with files.folder(run_root, links=True) as root:
        runs = _runs(root, time.monotonic() + MEASURED)
        deadline = time.monotonic() + SECONDS
        for run in surplus(runs, keep - 1, keep_bytes):
            if state.is_over(run.launch_id):
                os.rename(run.launch_id, f"{HALF_GONE}{run.launch_id}", src_dir_fd=root, dst_dir_fd=root)
                pruned.append(run.launch_id)
                size += run.size
        for name in os.listdir(root):
            if name.startswith(HALF_GONE):
                trees.remove(root, name, deadline)
    return {"pruned": pruned, "bytes": size}


def surplus(runs: list[Run], keep: int, keep_bytes: int) -> list[Run]:
    """Return the runs behind the newest `keep`, and those that do not fit into `keep_bytes` (0: no such limit) with
    all newer ones, the oldest first. Its size alone takes the newest of all from nobody."""
    found, total = [], 0
    for place, run in enumerate(sorted(runs, key=lambda one: one.began, reverse=True)):
        total += run.size
        if place >= max(keep, 0) or (keep_bytes and place and total > keep_bytes):
            found.append(run)
    return found[::-1]


def _runs(root: int, deadline: float) -> list[Run]:
    """Return the launches that left no state behind, which one that runs always has."""
    found = []
    for name in os.listdir(root):
        if not process.LAUNCH_ID.match(name) or os.path.lexists(state.state_dir(name)):
            continue
        try:
            with files.folder(name, within=root, owner=os.geteuid()) as handle:
                began = os.fstat(handle).st_mtime
                if set(os.listdir(handle)) <= OF_A_RUN:
                    found.append(Run(name, began, trees.size(root, name, deadline)))
        except OSError:
            continue  # the training user's own, or no folder
    return found
