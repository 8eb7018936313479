"""Causes refer only to findings, symptoms and causes that exist."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis.causes import CAUSES
from muster.diagnosis.symptoms import OTHERS
from muster.diagnosis.texts import TEXTS
from paths import ROOT

if TYPE_CHECKING:
    from muster.diagnosis.model import Cause, Question

FOLDER = ROOT / "plugins/module_utils/muster/diagnosis/causes"
LISTED = re.findall(r"^\| `([a-z0-9_.]+)` \|", (ROOT / "docs/findings.md").read_text(), re.MULTILINE)
IDS = re.compile(r"net(\.[a-z_]+)+")


def test_findings_that_causes_use_are_in_the_catalogue() -> None:
    strings = {
        part.value
        for path in sorted(FOLDER.glob("*.py"))
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    asked = {one for one in strings if IDS.fullmatch(one)} - {one.id for cause in CAUSES for one in questions(cause)}
    assert asked
    assert asked - set(LISTED) == set()


def questions(cause: Cause) -> tuple[Question, ...]:
    return (*cause.confirm, *cause.support, *cause.refute)


@pytest.mark.parametrize("cause", CAUSES, ids=[cause.id for cause in CAUSES])
def test_symptoms_and_replaced_causes_exist(cause: Cause) -> None:
    known = {*OTHERS, *(text.id for text in TEXTS)}
    assert {*cause.symptoms, *cause.decisive} - known == set()
    assert {*cause.instead_of} - {one.id for one in CAUSES} == set()
