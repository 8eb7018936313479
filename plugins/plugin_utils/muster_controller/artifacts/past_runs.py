"""Finds the newest smoke, health and drift run in the artifacts of a cluster."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from muster.status.past import PastRun, PastRuns

from .runs import history, read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOKED_AT = 300  # newest runs that are searched
BOOK = "acceptance.json"  # see ddp_smoke_verdict


def past(cluster_folder: Path) -> PastRuns:
    runs = [*islice(history(cluster_folder), LOOKED_AT)]
    return PastRuns(
        smoke=_newest(runs, _smoke, "smoke.json"),
        health=_newest(runs, lambda folder: (folder / "health").is_dir(), ""),
        drift=_newest(runs, lambda folder: (folder / "drift.json").is_file(), "drift.json"),
        book=read_json(cluster_folder / BOOK),
    )


def _smoke(folder: Path) -> bool:
    """Return whether this is the folder of a finished smoke run, even if the launch failed before any rank reported."""
    if not (folder / "verdict.json").is_file():
        return False
    return (folder / "smoke.json").is_file() or read_json(folder / "plan.json").get("what") == "acceptance"


def _newest(runs: list[Path], wanted: Callable[[Path], bool], content: str) -> PastRun:
    folder = next((one for one in runs if wanted(one)), None)
    if folder is None:
        return PastRun()
    run = {"id": folder.name, **read_json(folder / "run.json")}
    return PastRun(run, read_json(folder / "verdict.json"), read_json(folder / content) if content else {})
