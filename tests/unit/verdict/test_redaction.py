"""Masking of secrets by value in complete texts, in texts that arrive in pieces, and in texts with gaps."""

from __future__ import annotations

import base64
import json
import random
import urllib.parse

import pytest

from muster.verdict.masking import MASK
from muster.verdict.redaction import RedactedStream, Redaction, is_covered, secrets_of

GIVEN = 'pä55"w/rd+1'
OTHER = "abcabcabd-42"


@pytest.mark.parametrize(
    "form",
    [
        GIVEN,
        json.dumps(GIVEN),
        json.dumps(GIVEN, ensure_ascii=False),
        repr({"x": GIVEN}),
        urllib.parse.quote(GIVEN, safe=""),
        urllib.parse.quote_plus(GIVEN),
        *(base64.b64encode(f"{user}:{GIVEN}:".encode()).decode() for user in ("ada", "adam", "linus")),
        base64.urlsafe_b64encode(GIVEN.encode()).decode(),
    ],
)
def test_secret_is_masked_in_printed_forms(form: str) -> None:
    text = Redaction([GIVEN]).text(f"before {form} behind")
    assert MASK in text
    assert text.startswith("before ")
    assert text.endswith(" behind")
    assert not any(part in text for part in (GIVEN, form, form[8:-8] or form))


def test_each_line_of_a_secret_is_masked() -> None:
    text = Redaction(["-----BEGIN KEY-----\nMIIEabcdef\nxyz\n"]).text("line: MIIEabcdef")
    assert text == f"line: {MASK}"


def test_overlapping_secrets_are_masked() -> None:
    redaction = Redaction(["abcdef-1", "def-1234", "abcdef-12345"])
    assert redaction.text("abcdef-1234 abcdef-12345 xdef-1234") == f"{MASK} {MASK} x{MASK}"


@pytest.mark.parametrize("cut", range(1, 12))
def test_truncated_secret_in_a_sentence_is_masked(cut: int) -> None:
    redaction = Redaction([OTHER])
    texts = {redaction.text(f"node1: it said: {part} (code 1)") for part in (OTHER[:-cut], OTHER[cut:])}
    assert (texts == {f"node1: it said: {MASK} (code 1)"}) is (len(OTHER) - cut >= 6)


def test_all_strings_in_a_nested_structure_are_masked() -> None:
    shape = {"summary": f"no {OTHER}", OTHER: [1, None, (OTHER, True)]}
    assert Redaction([OTHER]).shape(shape) == {"summary": f"no {MASK}", MASK: [1, None, [MASK, True]]}


@pytest.mark.parametrize("seed", range(60))
def test_text_fed_in_pieces_is_masked_like_the_complete_text(seed: int) -> None:
    """The texts include some that consist only of parts of secrets."""
    chance = random.Random(seed)
    redaction = Redaction([OTHER, "abcab-1", "1abcabcab-", GIVEN])
    bits = [*redaction.forms, "abc", "ab", "-", "1", "line\n", "p", 'ä55"']
    text = "".join(chance.choice(bits) for _ in range(chance.randrange(60))) + "\0"
    stream, out, place = redaction.stream(), "", 0
    while place < len(text):
        piece = text[place : place + chance.randrange(1, 9)]
        place += len(piece)
        out += stream.feed(piece)
        assert len(stream.held) < redaction.longest
    assert out == redaction.stream().feed(text)
    assert not any(form in out for form in redaction.forms)


def test_text_that_cannot_start_a_secret_is_not_held_back() -> None:
    stream = Redaction([OTHER]).stream()
    assert [stream.feed(piece) for piece in ("step 1", "\n", "a", "b", "out")] == ["step 1", "\n", "", "", "about"]


@pytest.mark.parametrize("cut", range(1, len(OTHER)))
def test_secret_at_a_gap_is_masked(cut: int) -> None:
    stream = Redaction([OTHER]).stream()
    before = stream.feed(f"begin {OTHER[:cut]}") + stream.gap()
    behind = stream.feed(OTHER[cut]) + stream.feed(f"{OTHER[cut + 1 :]} end") + stream.gap()
    assert before in (f"begin {OTHER[:cut]}", f"begin {MASK}")
    assert len(before) <= len("begin ") + 4 or before.endswith(MASK)
    assert behind in (f"{OTHER[cut:]} end", f"{MASK} end")
    assert len(behind) <= len(" end") + 4 or behind.startswith(MASK)


def test_fragment_between_two_gaps_is_masked() -> None:
    stream = Redaction([OTHER]).stream()
    stream.gap()
    assert stream.feed(OTHER[2:5]) + stream.feed(OTHER[5:9]) + stream.gap() == MASK


def test_stream_without_secrets_holds_no_text_back() -> None:
    stream = Redaction([]).stream()
    assert isinstance(stream, RedactedStream)
    assert stream.feed("abc") + stream.gap() == "abc"
    assert Redaction([""]).text("abc") == "abc"


@pytest.mark.parametrize(
    ("value", "named", "covered"),
    [
        *(("hunter2", True, True), ("hunter2", False, False), ("hunter2-and-more", False, True)),
        *(("abc", True, False), ("true", True, False), ("password", True, False), ("WARN", False, False)),
        *(("29500", True, False), ("1234567890", True, True), ("/srv/project/key.json", False, False)),
        *(("correct horse", True, True), ("/JalrXUtnFEMI/K7MDENG", True, True), ("correcthorsebattery", True, True)),
    ],
)
def test_short_numbers_words_and_paths_are_not_masked(value: str, *, named: bool, covered: bool) -> None:
    assert is_covered(value, named=named) is covered


def test_secrets_of_a_launch_are_found_in_variables_and_arguments() -> None:
    found = secrets_of(
        {"HF_TOKEN": "hf-1234", "NCCL_DEBUG": "INFO", "HUB": "hub.example/x1"},
        {"DB_PWD": "hunter2", "MODE": "fast-and-good", "DB": "postgres://ada:geheim-1@db/x"},
        ["--api-key=k-1234", "--model", "small-model-1"],
    )
    assert sorted(found) == ["geheim-1", "hf-1234", "hub.example/x1", "hunter2", "k-1234"]
