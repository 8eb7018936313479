"""docs/findings.md lists exactly what the code can find."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCES = sorted((ROOT / "plugins/module_utils/muster").rglob("*.py")) + sorted(
    (ROOT / "plugins/plugin_utils").rglob("*.py")
)
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \|", re.MULTILINE)
LISTED = ROW.findall((ROOT / "docs/findings.md").read_text())


def strings(path: Path) -> Iterator[str]:
    """Every string in a module, but for those that declare the catalogue, and an f-string as far as its first field."""
    for node in body(path):
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def body(path: Path) -> list[ast.stmt]:
    statements = ast.parse(path.read_text()).body
    return [
        node
        for node in statements
        if not (isinstance(node, (ast.Assign, ast.AnnAssign)) and "FINDINGS" in ast.unparse(node).partition("=")[0])
    ]


def findings_made(path: Path) -> Iterator[str]:
    """The first argument, or the one called id, of whatever makes a finding, where it is written out."""
    for node in body(path):
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            given = call.args[:1] + [word.value for word in call.keywords if word.arg == "id"]
            for value in given if name.lower() == "finding" else []:
                if isinstance(value, ast.Constant):
                    yield str(value.value)


def test_the_catalogue_is_what_the_code_declares() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "script/findings.py", "--show"], check=True, capture_output=True, text=True
    )
    assert done.stdout == (ROOT / "docs/findings.md").read_text()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_what_is_found_is_in_the_catalogue(path: Path) -> None:
    assert set(findings_made(path)) <= set(LISTED)


def test_nothing_is_in_the_catalogue_that_no_rule_can_find() -> None:
    said = {text for path in SOURCES for text in strings(path)}
    begun = {text for text in said if text.endswith((".", "_"))}
    for finding in LISTED:
        rests = {finding.removeprefix(start) for start in begun if finding.startswith(start)}
        assert finding in said or rests & said or any(rest.rpartition(".")[2] in said for rest in rests), finding


def test_an_id_is_stable_dotted_and_in_small_letters() -> None:
    assert len(LISTED) == len(set(LISTED))
    for finding in LISTED:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", finding)
