"""Removal of old runs from a real artifacts folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from muster_controller.artifacts.private_files import point_latest
from muster_controller.artifacts.pruning import prune
from muster_controller.artifacts.runs import write_json
from muster_controller.report.page import write_page

if TYPE_CHECKING:
    from pathlib import Path


def run(cluster: Path, day: int, **about: object) -> Path:
    folder = cluster / f"202611{day:02}-101010-aaaa"
    write_page(folder, {"id": folder.name, "cluster": "lab", "ended": f"2026-11-{day:02}T10:11:00+00:00"})
    if about:
        write_json(folder / "run.json", {"id": folder.name, "ended": "then", **about})
    return folder


def test_only_old_runs_are_removed(tmp_path: Path) -> None:
    cluster = tmp_path / "lab"
    first, accepted, detached, killed, fetched, old, linked_to, *newest = (run(cluster, day) for day in range(1, 10))
    write_json(cluster / "acceptance.json", {"states": [{"run": accepted.name, "values": {}}]})
    write_json(detached / "plan.json", {})
    write_json(detached / "run.json", {"ended": "then", "launch": "detached"})
    (killed / "run.json").unlink()
    (fetched / "fetched/node1").mkdir(parents=True)
    (fetched / "fetched/node1/model.pt").write_text("weeks of work")
    # Must stay: a link named like a run, the target of a link inside a run, and files with other names.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (cluster / "20261001-101010-aaaa").symlink_to(outside)
    (old / "logs").symlink_to(outside)
    (cluster / "my notes").mkdir()
    (cluster / "evidence.key").write_text("key")
    point_latest(linked_to)
    before = set(cluster.iterdir())

    said = prune(cluster, 2)

    assert before - set(cluster.iterdir()) == {first, old}
    assert said == (
        "Artifacts of lab: 2 runs removed; kept: the newest 2, and older runs: 2 still referenced, "
        "2 possibly still running, 1 with files not written by Muster (cluster_artifacts_keep)"
    )
    assert (outside / "kept").read_text() == "kept"
    assert all(folder.is_dir() for folder in newest)
    assert prune(cluster, 2) == ""


def test_finished_launches_are_removed(tmp_path: Path) -> None:
    folders = [run(tmp_path / "lab", day, launch="finished") for day in range(1, 5)]
    for folder in folders:
        write_json(folder / "plan.json", {})
    prune(tmp_path / "lab", 1)
    assert [folder.is_dir() for folder in folders] == [False, False, False, True]


def test_interrupted_removal_is_completed_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = tmp_path / "lab"
    folders = [run(cluster, day) for day in range(1, 4)]

    def killed(*_args: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(cluster, 1)
    assert [path.name for path in cluster.iterdir() if path.name.startswith(".")] == [f".going-{folders[1].name}"]
    prune(cluster, 1)
    assert [path.name for path in cluster.iterdir()] == [folders[2].name]


def test_nothing_is_removed_if_accepted_state_is_unreadable(tmp_path: Path) -> None:
    folders = [run(tmp_path / "lab", day) for day in range(1, 4)]
    (tmp_path / "lab/acceptance.json").symlink_to(tmp_path / "elsewhere")
    assert prune(tmp_path / "lab", 1).startswith("Old artifacts of lab could not be removed: ")
    assert all(folder.is_dir() for folder in folders)


def test_nothing_is_removed_if_pruning_is_disabled(tmp_path: Path) -> None:
    folders = [run(tmp_path / "lab", day) for day in range(1, 4)]
    assert prune(tmp_path / "lab", 0) == ""
    assert prune(tmp_path / "none", 1) == ""
    assert all(folder.is_dir() for folder in folders)
