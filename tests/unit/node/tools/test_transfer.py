"""What a node looked at arrives whole, and no more than may be."""

from __future__ import annotations

import base64
import zlib

import pytest

from muster_node.tools import transfer


def test_what_is_encoded_comes_out_again_and_is_small() -> None:
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
    ids=["no base64", "not packed", "cut off", "too large", "no JSON"],
)
def test_anything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        transfer.decode(text)


def test_what_could_not_be_decoded_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="12 bytes, but at most 10 are allowed"):
        transfer.encode("a" * 10)
