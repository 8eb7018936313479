"""Removes old runs from the artifacts of a cluster, at the end of a run; see muster/report/pruning.py."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from muster.report import run_verdict
from muster.report.pruning import KeptRun, decide, sentence
from muster_node.tools import files
from muster_node.tools.process import LAUNCH_ID

from .past_runs import BOOK
from .runs import history, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A_RUN = re.compile(LAUNCH_ID.pattern[:-2])
# Files that refer to other runs: attempts of a launch, compared launches, compared states.
SPEAK_OF_RUNS = ("run.json", "plan.json", "attempts.json", "comparison.json")
LATEST = "latest"
GOING = ".going-"


def prune(cluster_folder: Path, most: int) -> str:
    """Remove old runs. Return a message, or "" if there is nothing to report."""
    if most <= 0:
        return ""
    try:
        decision = decide([look(folder) for folder in history(cluster_folder)], most, set(named(cluster_folder)))
        failed = [name for name in decision.removed if not remove(cluster_folder / name)]
        for left in sorted(cluster_folder.glob(f"{GOING}*")):
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        return f"Old artifacts of {cluster_folder.name} could not be removed: {error}"
    return sentence(decision, len(failed), cluster_folder.name)


def remove(folder: Path) -> bool:
    """Rename the folder, and then delete it without following links. If this run is killed, the next run deletes the
    rest. A run that ends at the same time might already have removed the folder.
    """
    going = folder.with_name(GOING + folder.name)
    try:
        folder.rename(going)
        shutil.rmtree(going)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def look(folder: Path) -> KeptRun:
    about = folder.lstat()
    run = read_json(folder / "run.json")
    mentions = {name for file in SPEAK_OF_RUNS for name in ids_in(folder / file)}
    return KeptRun(
        folder.name,
        over(folder, run),
        [path.name for path in folder.iterdir()],
        mentions,
        own=about.st_uid == os.geteuid(),
    )


def over(folder: Path, run: dict[str, object]) -> bool:
    """Return whether a run has ended, including its launch, which can continue after the run."""
    if not run.get("ended"):
        return False
    return run.get("launch", "") != run_verdict.DETACHED and not (
        (folder / "plan.json").exists() and not run.get("launch")
    )


def named(cluster_folder: Path) -> Iterator[str]:
    """Yield the runs that `latest` and the accepted state refer to."""
    with suppress(OSError):
        yield (cluster_folder / LATEST).readlink().name
    yield from ids_in(cluster_folder / BOOK)


def ids_in(path: Path) -> list[str]:
    """Return the run ids in a file. Raises OSError if the file exists but cannot be read, so that no run is removed."""
    try:
        return A_RUN.findall(files.read(str(path)).decode("utf-8", "replace"))
    except FileNotFoundError:
        return []
