"""What nodes say, as it may be shown."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cases import cases
from muster.verdict.finding import Finding, evidence, fix_with
from muster.verdict.printable import UNSEEN, printable


@cases(__file__, "printable")
def test_printable(case: dict[str, Any]) -> None:
    assert printable(case["text"]) == case["shown"]
    assert printable(case["shown"]) == case["shown"]


def test_half_a_character_can_be_kept() -> None:
    assert printable("a\ud83dz").encode() == b"a<U+D83D>z"


def test_sequences_within_sequences_leave_none() -> None:
    shown = printable("\x1b\x1b[31m[32m" + "\x1b[" * 3 + "31m")
    assert not UNSEEN.search(shown)


@pytest.mark.parametrize(
    "text", ["\x1b]" * 300_000, "\x1b[" + "0" * 600_000, "\x1b]" + "x" * 600_000, "\x90" * 600_000, "\x90x" * 600_000]
)
def test_what_never_ends_takes_time_by_its_length_alone(text: str) -> None:
    began = time.thread_time()
    printable(text)
    assert time.thread_time() - began < 60  # a search that begins anew at every place would take hours


def test_a_finding_is_printable_wherever_it_is_shown() -> None:
    foul = "\x1b[2J\x1b]52;c;eA==\aHEALTHY"
    shape = Finding(
        "launch.exit", "fail", "node1", foul, observed=foul, evidence=evidence(foul, foul), fix=fix_with(foul, foul)
    ).as_dict()
    assert shape["summary"] == shape["observed"] == "HEALTHY"
    assert shape["evidence"] == [{"source": "HEALTHY", "text": "HEALTHY"}]
    assert shape["fix"] == {"text": "HEALTHY", "command": "HEALTHY"}
