"""No text takes the example of another for its own; test_errors.py asks the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis.texts import TEXTS

if TYPE_CHECKING:
    from muster.diagnosis.evidence import Text

# Of one line two texts may each say something: (whose example, who else claims it).
ALSO = {("nccl.unique_id", "store.key")}


@pytest.mark.parametrize("text", TEXTS, ids=[text.id for text in TEXTS])
def test_no_other_text_claims_an_example(text: Text) -> None:
    others = {one.id for one in TEXTS if one is not text and re.search(one.pattern, text.example)}
    assert {(text.id, one) for one in others} <= ALSO
