"""Pruning of logs of earlier launches, which keeps the newest logs and all working directories."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import starting, state
from muster_node.launch.starting import StoredLaunch
from muster_node.tools import trees

if TYPE_CHECKING:
    from pathlib import Path

IDS = [f"20260101-12000{number}-abcd" for number in range(5)]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the folders of five launches, oldest first."""
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "state"))
    monkeypatch.setattr(state, "is_over", lambda _launch_id: True)
    root = tmp_path / "runs"
    for age, name in enumerate(IDS):
        (root / name / "logs/torchrun").mkdir(parents=True)
        (root / name / "logs/agent.log").write_bytes(b"x" * 100_000)
        os.utime(root / name, (1000 + age, 1000 + age))
    return root


def remaining(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir()}


def prune(runs: Path, keep: int, keep_bytes: int = 0) -> Any:
    return starting.prune(str(runs), keep, keep_bytes)


def test_newest_logs_and_the_starting_launch_are_kept(runs: Path) -> None:
    done = prune(runs, 3)
    assert done["pruned"] == IDS[:3]
    assert 3 * 100_000 <= done["bytes"] < 3 * 130_000
    assert remaining(runs) == set(IDS[3:])
    assert prune(runs, 3) == {"pruned": [], "bytes": 0}


def test_logs_are_kept_up_to_the_size_limit(runs: Path) -> None:
    assert prune(runs, 10, 250_000)["pruned"] == IDS[:3]
    assert prune(runs, 10, 1)["pruned"] == [IDS[3]], "the newest launch is kept regardless of its size"


def test_logs_of_running_launches_are_kept(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / IDS[0]).mkdir(parents=True)
    monkeypatch.setattr(state, "is_over", lambda launch_id: launch_id != IDS[1])
    assert prune(runs, 1)["pruned"] == IDS[2:]
    assert remaining(runs) == set(IDS[:2])


def test_unrelated_files_are_not_removed(runs: Path, tmp_path: Path) -> None:
    for name in ("datasets", f"{IDS[0]}.kept"):
        (runs / name / "logs").mkdir(parents=True)
    (runs / "20250101-120000-abcd").write_text("a file")
    (runs / "20250101-120001-abcd").symlink_to(tmp_path)
    (runs / "20250101-120002-abcd/logs").mkdir(parents=True)
    (runs / "20250101-120002-abcd/checkpoint").touch()  # in an earlier version the working directory of the job
    before = remaining(runs) - set(IDS)
    assert prune(runs, 1)["pruned"] == IDS
    assert remaining(runs) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change owners")
def test_folder_of_the_training_user_is_kept(runs: Path) -> None:
    os.chown(runs / IDS[0], 65534, 65534)
    assert prune(runs, 1)["pruned"] == IDS[1:]


def test_interrupted_removal_is_finished_at_the_next_start(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "SECONDS", -1.0)
    assert prune(runs, 4)["pruned"] == IDS[:2]
    assert len(remaining(runs)) == 5
    monkeypatch.setattr(starting, "SECONDS", 60.0)
    assert prune(runs, 4) == {"pruned": [], "bytes": 0}
    assert remaining(runs) == set(IDS[2:])


def test_slow_size_measurement_does_not_prevent_removal(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a launch can contain millions of small files."""

    def endless(_within: int, _name: str, deadline: float) -> int:
        time.sleep(max(0.0, deadline - time.monotonic()))
        return 0

    monkeypatch.setattr(trees, "size", endless)
    monkeypatch.setattr(starting, "MEASURED", 0.5)
    assert prune(runs, 3)["pruned"] == IDS[:3]
    assert remaining(runs) == set(IDS[3:])


@pytest.mark.parametrize(
    ("keep", "keep_bytes", "gone"),
    [
        (9, 0, ""),
        (2, 0, "ab"),
        (0, 0, "abcd"),
        (-1, 0, "abcd"),
        (9, 30, "ab"),
        (9, 29, "abc"),
        (9, 1, "abc"),
        (3, 30, "ab"),
    ],
)
def test_surplus_launches_are_selected(keep: int, keep_bytes: int, gone: str) -> None:
    runs = [
        StoredLaunch("c", 3.0, 20),
        StoredLaunch("a", 1.0, 5),
        StoredLaunch("d", 4.0, 10),
        StoredLaunch("b", 2.0, 5),
    ]
    assert "".join(run.launch_id for run in starting.surplus(runs, keep, keep_bytes)) == gone
