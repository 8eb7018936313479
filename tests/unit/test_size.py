"""How lines of code are counted, and that no area exceeds its budget."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A module."""

import os  # once


def work() -> str:
    """Two
    lines."""
    # A comment.
    text = """
    kept
    """
    return text + os.sep
'''


@pytest.fixture(scope="module")
def size() -> Any:
    loader = importlib.machinery.SourceFileLoader("size", str(ROOT / "script/size"))
    spec = importlib.util.spec_from_loader("size", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_blank_lines_comments_and_docstrings_do_not_count(size: Any, tmp_path: Path) -> None:
    assert size.python_lines(SOURCE) == 6
    for name, text in (("a.yml", "---\n# why\n\na: 1\n"), ("a.sh", "true\n\n# why\ntrue\n"), ("a.bin", "x\n")):
        (tmp_path / name).write_text(text)
    assert [size.lines_of(tmp_path / name) for name in ("a.yml", "a.sh", "a.bin")] == [2, 2, 0]


def test_area_above_budget_is_reported(
    size: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "size.md"
    page.write_text("| area | lines |\n|---|---|\n| `library` | 1 |\n| `script` | 99999 |\n")
    monkeypatch.setattr(size, "BUDGET", page)
    monkeypatch.setattr(size, "count", lambda: (Counter({"library": 2, "script": 5}), Counter(), 0))
    assert size.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("library: 2, above the budget of 1\n")
    page.write_text("| `script` | 99999 |\n")
    assert size.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_every_area_has_a_budget(size: Any) -> None:
    assert set(size.budgets(size.BUDGET.read_text())) == {
        *size.AREAS,
        size.PYTHON,
        size.FILES,
        size.UNTYPED,
        size.SHARED,
    }
