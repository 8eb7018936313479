"""Discovery of other users' Python environments in the usual locations, including ones with hostile contents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from muster_node.looks import environments
from muster_node.tools.environment_marks import MOST, marks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for place in ("miniconda3", "miniconda3/envs/train", ".conda/envs/own", "vision/.pixi/envs/default", "elsewhere"):
        (tmp_path / place / "conda-meta").mkdir(parents=True)
        (tmp_path / place / "lib/python3.11/site-packages/torch").mkdir(parents=True)
    (tmp_path / "miniconda3/envs/train/conda-meta/history").write_text("# cmd: /x/bin/conda create\n")
    version = tmp_path / "miniconda3/envs/train/lib/python3.11/site-packages/torch/version.py"
    version.write_text("__version__ = '2.7.1'\n")
    (tmp_path / "vision/.pixi/envs/default/conda-meta/pixi").write_text("{}")
    (tmp_path / ".conda/environments.txt").write_text(f"{tmp_path}/elsewhere\n{tmp_path}/gone\nrelative\n")
    (tmp_path / "notes/deep/miniconda3/conda-meta").mkdir(parents=True)
    return tmp_path


def test_environments_in_a_home_are_found_by_their_marker_files(home: Path) -> None:
    found = environments._in_the_home_of(str(home))
    assert sorted(path.removeprefix(f"{home}/") for path in found) == [
        ".conda/envs/own",
        "elsewhere",
        "miniconda3",
        "miniconda3/envs/train",
        "vision/.pixi/envs/default",
    ]
    train = found[f"{home}/miniconda3/envs/train"]
    assert (train["python"], train["torch"]) == ("3.11", "2.7.1")
    assert train["marks"] == {"conda-meta/history": "# cmd: /x/bin/conda create\n"}
    assert found[f"{home}/elsewhere"]["torch"] == ""


def test_pipe_and_endless_file_do_not_block(home: Path) -> None:
    meta = home / "miniconda3/conda-meta"
    os.mkfifo(meta / "history")
    (meta / "pixi").symlink_to("/dev/zero")
    assert marks(str(home / "miniconda3")) == {"conda-meta/history": ""}
    (home / "elsewhere/conda-meta/history").write_text("x" * 10_000)
    assert len(marks(str(home / "elsewhere"))["conda-meta/history"]) == MOST


def test_number_of_listed_environments_is_limited(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "MOST", 2)
    assert len(environments._in_the_home_of(str(home))) == 2
    monkeypatch.setattr(environments, "MOST_NAMES", 1)
    assert environments._names(str(home)) == []


def test_paths_in_the_inventory_are_inspected_anywhere(home: Path) -> None:
    seen = environments.look("nobody", [f"{home}/notes/deep/miniconda3"])
    assert seen["why"] == ""
    assert isinstance(seen["found"], list)
    assert environments._all([f"{home}/notes/deep/miniconda3"]).keys() == {f"{home}/notes/deep/miniconda3"}
