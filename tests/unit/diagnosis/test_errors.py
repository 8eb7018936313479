"""docs/errors.md matches the tables of texts and causes, and patterns match their examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis import symptoms
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.texts import TEXTS

if TYPE_CHECKING:
    from muster.diagnosis.evidence import Text

ROOT = Path(__file__).resolve().parents[3]


def test_errors_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "script/errors.py"), "--show"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (ROOT / "docs/errors.md").read_text() == shown.stdout


def test_errors_page_lists_every_text_and_every_cause_once() -> None:
    lines, causes = (ROOT / "docs/errors.md").read_text().split("\n## All causes\n")
    entries = re.findall(r"^```text\n(.+)\n```\n\n(\S.+)\n\n(\S.+)$", lines, re.MULTILINE)
    assert [line for line, _, _ in entries] == [text.example.strip() for text in TEXTS]
    assert [f"(`{text.id}`)" in means for text, (_, means, _) in zip(TEXTS, entries, strict=True)].count(False) == 0
    assert sorted(re.findall(r"^#### (.+)$", causes, re.MULTILINE)) == sorted(cause.id for cause in CAUSES)
    assert len(re.findall(r"^- Fix: \S", causes, re.MULTILINE)) == len(CAUSES)


def test_printed_commands_contain_no_placeholders() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    commands = re.findall(r"`(\.venv/[^`]+)`|\bon node\d `([^`]+)`", page)
    assert commands
    assert [one for pair in commands for one in pair if "..." in one or "{" in one] == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.id)
def test_pattern_matches_its_example(text: Text) -> None:
    assert re.search(text.pattern, text.example)


def test_text_ids_are_unique() -> None:
    ids = [text.id for text in TEXTS]
    assert sorted(set(ids)) == sorted(ids)


def test_symptoms_of_causes_exist() -> None:
    known = {text.id for text in TEXTS} | set(symptoms.OTHERS)
    assert {one for cause in CAUSES for one in (*cause.symptoms, *cause.decisive)} - known == set()


def test_cause_ids_are_unique_and_replaced_causes_exist() -> None:
    ids = [cause.id for cause in CAUSES]
    assert sorted(set(ids)) == sorted(ids)
    assert {one for cause in CAUSES for one in cause.instead_of} - set(ids) == set()
