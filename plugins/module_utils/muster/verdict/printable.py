"""Makes text from nodes safe to display, so that it cannot move the cursor, set the clipboard or reverse a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# Complete sequences are removed, so that coloured text stays readable: CSI; OSC, DCS, SOS, PM and APC with their texts,
# which end with BEL or ST; and short ones. An incomplete sequence becomes visible, like any control character.
SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{1,4}[0-~]"
    r"|\x1b[0-9=>cDEHMNOZ]"
)
# Control characters except tab and newline, direction marks and overrides, line separators, surrogates.
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
PICTURES = 0x2400  # Unicode block with visible symbols of the first 32 control characters


def printable(text: str) -> str:
    """Remove escape sequences and make control characters visible. Tabs and newlines are kept."""
    return UNSEEN.sub(_visible, SEQUENCE.sub("", text)) if UNSEEN.search(text) else text


@dataclass(frozen=True)
class ForeignText:
    """Text from a node, a log, an image or a user's file. The class is not a str: mypy rejects it where a str is
    required, and it cannot be formatted. Only `line` can put it into a sentence."""

    raw: str

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __format__(self, how: str) -> str:
        raise TypeError("use ForeignText.line to display foreign text")

    def __str__(self) -> str:
        raise TypeError("use ForeignText.line to display foreign text")

    @property
    def line(self) -> str:
        """Return the text for display: printable, on one line."""
        return " ".join(printable(self.raw).split())


def printable_parts(value: Any) -> Any:
    """Return a value in which every text, including keys, is printable."""
    if isinstance(value, dict):
        return {printable_parts(key): printable_parts(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_parts(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"<U+{code:04X}>"
