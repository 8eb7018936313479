"""Lines of a log that comes in pieces: bounded, whatever a program writes."""

from __future__ import annotations

import re

MOST = 64 * 1024  # characters of a line; the rest is left out, which is said at its end
END = re.compile(r"\r\n|\n|\r")  # a progress bar ends its lines with a carriage return alone


class Lines:
    def __init__(self) -> None:
        self.begun = ""
        self.left_out = 0
        self.returned = False  # the last piece ended with a carriage return, to which a newline may still belong

    def take(self, text: str) -> list[str]:
        """The lines that end in this piece, without their ends."""
        if self.returned and text.startswith("\n"):
            text = text[1:]
        self.returned = text.endswith("\r")
        *ended, rest = END.split(text)
        found = []
        for piece in ended:
            self.grow(piece)
            more = f" ... {self.left_out} characters left out" if self.left_out else ""
            found.append(self.begun + more)
            self.begun, self.left_out = "", 0
        self.grow(rest)
        return found

    def grow(self, piece: str) -> None:
        taken = piece[: MOST - len(self.begun)]
        self.begun += taken
        self.left_out += len(piece) - len(taken)
