"""Split a log that arrives in chunks into lines of limited length."""

from __future__ import annotations

import re

MOST = 64 * 1024  # characters of a line; the rest is left out, with a note at the end of the line
# A progress bar ends its lines with only a carriage return. Empty lines are useless, and there may be millions.
END = re.compile(r"[\r\n]+")


class Lines:
    def __init__(self) -> None:
        self.begun = ""
        self.left_out = 0

    def take(self, text: str) -> list[str]:
        """Return the non-empty lines that end in this chunk, without line endings."""
        *ended, rest = END.split(text)
        found = []
        if ended:
            self.grow(ended[0])
            found = [shown(self.begun, self.left_out), *(shown(line, 0) for line in ended[1:])]
            self.begun, self.left_out = "", 0
        self.grow(rest)
        return [line for line in found if line]

    def grow(self, piece: str) -> None:
        taken = piece[: MOST - len(self.begun)]
        self.begun += taken
        self.left_out += len(piece) - len(taken)


def shown(line: str, left_out: int) -> str:
    left_out += max(0, len(line) - MOST)
    return f"{line[:MOST]} ... {left_out} characters left out" if left_out else line
