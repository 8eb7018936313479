"""Patterns do not match the examples of other texts. test_errors.py contains the other checks of the table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis.texts import TEXTS

if TYPE_CHECKING:
    from muster.diagnosis.evidence import Text

# Exceptions: (text with the example, other text that also matches it).
ALSO = {("nccl.unique_id", "store.key")}


@pytest.mark.parametrize("text", TEXTS, ids=[text.id for text in TEXTS])
def test_example_matches_only_its_own_text(text: Text) -> None:
    others = {one.id for one in TEXTS if one is not text and re.search(one.pattern, text.example)}
    assert {(text.id, one) for one in others} <= ALSO
