"""The table of texts: each finds its own example, and no other text takes it for its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis.texts import TEXTS

if TYPE_CHECKING:
    from muster.diagnosis.model import Text

# Of one line two texts may each say something: (whose example, who else claims it).
ALSO: set[tuple[str, str]] = set()


def test_ids_are_written_once_and_begin_with_who_prints_them() -> None:
    ids = [text.id for text in TEXTS]
    assert sorted(set(ids)) == sorted(ids)
    assert all(re.fullmatch(r"[a-z]+(\.[a-z_]+)+", one) for one in ids)


@pytest.mark.parametrize("text", TEXTS, ids=[text.id for text in TEXTS])
def test_a_text_finds_its_example_and_no_other_does(text: Text) -> None:
    found = {one.id for one in TEXTS if re.search(one.pattern, text.example)}
    assert text.id in found
    assert {(text.id, one) for one in found - {text.id}} <= ALSO
    assert text.means and text.source
