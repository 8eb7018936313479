"""Encoding of a node's facts for transfer, with a size limit."""

from __future__ import annotations

import base64
import zlib

import pytest

from muster_node.tools import transfer


def test_facts_are_compressed_and_decoded_unchanged() -> None:
    looks = {"gpu": {"text": "<gpu>" * 10_000}, "ras": [None, True, 1.5, "ä"]}
    text = transfer.encode(looks)
    assert transfer.decode(text) == looks
    assert len(text) < 1000


def bomb() -> str:
    return base64.b64encode(zlib.compress(b"0" * (transfer.MOST_BYTES + 1))).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not base64", "base64|padding|characters"),
        (base64.b64encode(b"not packed").decode(), "corrupt data"),
        (transfer.encode({"a": "b" * 1000})[:20], "truncated"),
        (bomb(), "more than"),
        (base64.b64encode(zlib.compress(b"{")).decode(), "Expecting"),
    ],
    ids=["not base64", "not compressed", "truncated", "too large", "not JSON"],
)
def test_invalid_text_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        transfer.decode(text)


def test_oversized_facts_are_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="12 bytes, but at most 10 are allowed"):
        transfer.encode("a" * 10)
