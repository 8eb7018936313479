"""Loading of case files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases import load_cases

if TYPE_CHECKING:
    from pathlib import Path


def test_cases_are_named_by_file_and_number(tmp_path: Path) -> None:
    (tmp_path / "two.yml").write_text("a: 1\n---\na: 2\n")
    (tmp_path / "one.yml").write_text("a: 0\n")
    assert load_cases(tmp_path) == {"one": {"a": 0}, "two-1": {"a": 1}, "two-2": {"a": 2}}


def test_folder_without_cases_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no case"):
        load_cases(tmp_path)
