"""Mutations in tests/slow/mutations.yml are valid: the text of each occurs once in its file, and its tests exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cases import document_of

ROOT = Path(__file__).parents[2]
MUTATIONS = [mutation for of_role in document_of(ROOT / "tests/slow/mutations.yml").values() for mutation in of_role]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation["what"] for mutation in MUTATIONS])
def test_mutation_text_occurs_once_and_its_tests_exist(mutation: dict[str, Any]) -> None:
    assert (ROOT / mutation["file"]).read_text().count(mutation["find"]) == 1
    for place in mutation["tests"]:
        file, _, name = place.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert not name or f"def {name.partition('[')[0]}(" in text, place
