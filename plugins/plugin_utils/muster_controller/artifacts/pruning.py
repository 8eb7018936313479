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
# What speaks of other runs: attempts of one launch, launches that are compared, a state that was compared with.
SPEAK_OF_RUNS = ("run.json", "plan.json", "attempts.json", "comparison.json")
LATEST = "latest"
GOING = ".going-"


def prune(cluster_folder: Path, most: int) -> str:
    """Remove what does not stay, and return what is to be said of it; "" for nothing."""
    if most <= 0:
        return ""
    try:
        decision = decide([look(folder) for folder in history(cluster_folder)], most, set(named(cluster_folder)))
        failed = [name for name in decision.removed if not remove(cluster_folder / name)]
        for left in sorted(cluster_folder.glob(f"{GOING}*")):
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        return f"Artifacts of {cluster_folder.name}: none were removed: {error}"
    return sentence(decision, len(failed), cluster_folder.name)


def remove(folder: Path) -> bool:
    """It goes at once, and then file by file, without following a link; what a run that is killed leaves, the next one
    removes. Another run that ends now may have been first.
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
    """A run says so when it ends; a launch that was left to itself goes on after that."""
    if not run.get("ended"):
        return False
    return run.get("launch", "") != run_verdict.DETACHED and not (
        (folder / "plan.json").exists() and not run.get("launch")
    )


def named(cluster_folder: Path) -> Iterator[str]:
    """The runs that latest and the accepted state speak of."""
    with suppress(OSError):
        yield (cluster_folder / LATEST).readlink().name
    yield from ids_in(cluster_folder / BOOK)


def ids_in(path: Path) -> list[str]:
    """Raises OSError where the file is there and cannot be read: whoever does not know what it says removes nothing."""
    try:
        return A_RUN.findall(files.read(str(path)).decode("utf-8", "replace"))
    except FileNotFoundError:
        return []
