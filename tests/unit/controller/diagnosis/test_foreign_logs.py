"""Logs that somebody names: a file, a folder, a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.launch.plan import PlanError
from muster_controller.diagnosis.foreign_logs import LONGEST, texts_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1/stderr.log").write_text("one")
    (tmp_path / "slurm-7.out").write_bytes(b"two \xff")
    (tmp_path / "model.pt").write_text("three")
    return tmp_path


def test_a_file_a_folder_and_a_pattern(folder: Path) -> None:
    file = folder / "model.pt"
    assert texts_of(str(file)) == {str(file): "three"}
    log, out = folder / "node1/stderr.log", folder / "slurm-7.out"
    assert texts_of(str(folder)) == {str(log): "one", str(out): "two \N{REPLACEMENT CHARACTER}"}
    assert list(texts_of(f"{folder}/slurm-*.out")) == [str(out)]
    assert list(texts_of(f"{folder}/*/std???.log")) == [str(log)]


def test_of_a_long_one_its_end(folder: Path) -> None:
    file = folder / "slurm-7.out"
    file.write_text("x" * LONGEST + "end")
    [text] = texts_of(str(file)).values()
    assert len(text) == LONGEST
    assert text.endswith("end")


def test_where_there_is_none_says_what_may_be_named(folder: Path) -> None:
    with pytest.raises(PlanError) as problem:
        texts_of(f"{folder}/none-*.log")
    assert "There is no log at" in problem.value.problems[0]
