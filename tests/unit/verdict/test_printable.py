"""Sanitizing of text from nodes for display."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from mypy import api

from cases import cases
from muster.verdict.finding import Finding, evidence, fix_with
from muster.verdict.printable import UNSEEN, ForeignText, printable

if TYPE_CHECKING:
    from pathlib import Path


@cases(__file__, "printable")
def test_control_characters_are_escaped(case: dict[str, Any]) -> None:
    assert printable(case["text"]) == case["shown"]
    assert printable(case["shown"]) == case["shown"]


def test_surrogates_are_escaped() -> None:
    assert printable("a\ud83dz").encode() == b"a<U+D83D>z"


def test_nested_terminal_sequences_are_removed_completely() -> None:
    shown = printable("\x1b\x1b[31m[32m" + "\x1b[" * 3 + "31m")
    assert not UNSEEN.search(shown)


@pytest.mark.parametrize(
    "text", ["\x1b]" * 300_000, "\x1b[" + "0" * 600_000, "\x1b]" + "x" * 600_000, "\x90" * 600_000, "\x90x" * 600_000]
)
def test_unterminated_sequence_is_processed_in_linear_time(text: str) -> None:
    began = time.thread_time()
    printable(text)
    assert time.thread_time() - began < 60  # quadratic time would be hours


def test_all_parts_of_a_finding_are_printable() -> None:
    foul = "\x1b[2J\x1b]52;c;eA==\aHEALTHY"
    shape = Finding(
        "launch.exit", "fail", "node1", foul, observed=foul, evidence=evidence(foul, foul), fix=fix_with(foul, foul)
    ).as_dict()
    assert shape["summary"] == shape["observed"] == "HEALTHY"
    assert shape["evidence"] == [{"source": "HEALTHY", "text": "HEALTHY"}]
    assert shape["fix"] == {"text": "HEALTHY", "command": "HEALTHY"}


def test_foreign_text_cannot_be_formatted() -> None:
    text = ForeignText("a\x1b[2J\nb")
    assert (text.line, bool(ForeignText(""))) == ("a b", False)
    for use in (str, "{}".format, lambda one: f"{one}"):
        with pytest.raises(TypeError):
            use(text)


def test_mypy_rejects_foreign_text_as_str(tmp_path: Path) -> None:
    uses = ["Path(text)", "'-'.join([text])", "'node1: ' + text", "re.sub('x', text, 'x')"]
    imports = ["import re", "from pathlib import Path", "from muster.verdict.printable import ForeignText"]
    (tmp_path / "uses.py").write_text("\n".join([*imports, "text = ForeignText('x')", *uses]))
    shown, _, _ = api.run(["--cache-dir", str(tmp_path), str(tmp_path / "uses.py")])
    assert re.findall(r"uses.py:(\d+): error", shown) == ["5", "6", "7", "8"], shown
