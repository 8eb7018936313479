"""Selection of the runs to keep when their number is limited, and the printed summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.report.pruning import FOREIGN, NOT_OVER, REFERRED, KeptRun, decide, sentence

PAGE = ("run.json", "report.html", "junit.xml")


def runs(count: int) -> list[KeptRun]:
    """Return runs, newest first: run9 to run0 for ten."""
    return [KeptRun(f"run{number}", over=True, names=PAGE) for number in reversed(range(count))]


def changed(given: list[KeptRun], name: str, **how: Any) -> list[KeptRun]:
    return [replace(run, **how) if run.id == name else run for run in given]


def test_newest_runs_are_kept() -> None:
    decision = decide(runs(10), 4, ())
    assert decision.newest == ["run9", "run8", "run7", "run6"]
    assert decision.kept == {}
    assert decision.removed == ["run5", "run4", "run3", "run2", "run1", "run0"]
    assert sentence(decision, 0, "lab") == (
        "Artifacts of lab: 6 runs removed; kept: the newest 4 (cluster_artifacts_keep)"
    )


@pytest.mark.parametrize(("most", "removed"), [(0, 0), (-1, 0), (10, 0), (11, 0), (9, 1)])
def test_only_runs_above_the_limit_are_removed(most: int, removed: int) -> None:
    decision = decide(runs(10), most, ())
    assert len(decision.removed) == removed
    assert bool(sentence(decision, 0, "lab")) is bool(removed)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"over": False}, NOT_OVER),
        ({"own": False}, FOREIGN),
        ({"names": (*PAGE, "notes.txt")}, FOREIGN),
        ({"names": (*PAGE, "fetched")}, FOREIGN),
        ({"names": (*PAGE, "health")}, REFERRED),
        ({"names": (*PAGE, "plan.json")}, REFERRED),
    ],
)
def test_old_run_that_must_be_kept_has_a_reason(how: dict[str, Any], reason: str) -> None:
    decision = decide(changed(runs(10), "run2", **how), 4, ())
    assert decision.kept == {"run2": reason}
    assert "run2" not in decision.removed


def test_only_the_newest_run_with_a_file_is_kept() -> None:
    looked = changed(changed(runs(10), "run7", names=(*PAGE, "health")), "run2", names=(*PAGE, "health"))
    assert decide(looked, 4, ()).kept == {}


def test_runs_referenced_by_latest_or_the_accepted_state_are_kept() -> None:
    assert decide(runs(10), 4, ("run1", "run9", "none")).kept == {"run1": REFERRED}


def test_runs_referenced_by_kept_runs_are_kept_transitively() -> None:
    """The newest run references run3, which references run1. A run that is removed references run0."""
    spoken = changed(changed(runs(10), "run9", mentions=("run9", "run3")), "run3", mentions=("run1",))
    decision = decide(changed(spoken, "run2", mentions=("run0",)), 4, ())
    assert decision.kept == {"run3": REFERRED, "run1": REFERRED}
    assert decision.removed == ["run5", "run4", "run2", "run0"]


def test_summary_of_pruning_lists_kept_runs() -> None:
    given = changed(changed(runs(10), "run0", over=False), "run1", names=(*PAGE, "fetched"))
    assert sentence(decide(given, 4, ("run2",)), 1, "lab") == (
        "Artifacts of lab: 2 runs removed (1 could not be removed); kept: the newest 4, and older runs: "
        "1 still referenced, 1 possibly still running, 1 with files not written by Muster (cluster_artifacts_keep)"
    )
