"""What nodes say, as it may be shown: no text of theirs moves a cursor, sets a clipboard or reverses a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# Whole sequences are left out, so that what was coloured can be read: CSI; OSC, DCS, SOS, PM and APC with their texts,
# which end with BEL or ST; and the short ones. One that does not end becomes visible, as any control character does.
SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{1,4}[0-~]"
    r"|\x1b[0-9=>cDEHMNOZ]"
)
# Controls but tab and newline, marks and overrides of the direction, separators of lines, halves of characters.
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
PICTURES = 0x2400  # where Unicode has a visible character for each of the first 32


def printable(text: str) -> str:
    """The text without what a terminal or a page would obey; tab and newline stay, the rest becomes visible."""
    return UNSEEN.sub(_visible, SEQUENCE.sub("", text)) if UNSEEN.search(text) else text


@dataclass(frozen=True)
class ForeignText:
    """What a node, a log, an image or a user's file says. It is no str: mypy refuses it where one is needed, and it
    cannot be formatted, so that it comes into a sentence through `line` alone."""

    raw: str

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __format__(self, how: str) -> str:
        raise TypeError("foreign text is shown by its line")

    def __str__(self) -> str:
        raise TypeError("foreign text is shown by its line")

    @property
    def line(self) -> str:
        """For people: printable, on one line."""
        return " ".join(printable(self.raw).split())


def printable_parts(value: Any) -> Any:
    """The value with every text in it printable, keys included."""
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
