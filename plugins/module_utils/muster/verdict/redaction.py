"""Masks declared secrets by their value wherever they appear: in logs, on the screen, in findings.

A value is searched for verbatim, line by line, and in the forms in which programs print it: escaped as in JSON or
Python, URL-encoded, and in base64 (also within a longer text, such as user:password).
"""

from __future__ import annotations

import base64
import json
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from .masking import MASK, SECRET_NAME, secrets_of_argv, secrets_of_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHORTEST = 4  # characters of a masked secret
SHORTEST_UNNAMED = 8  # characters, if its name is not that of a secret
SHORTEST_NUMBER = 10
LONGEST_WORD = 11  # letters of a word that logs may contain for other reasons
LONGEST_EDGE = 6  # characters of a secret that may remain at a cut: at most a third
WORD = re.compile(r"[a-z]+|[A-Z]+|[A-Z][a-z]+")
HEAD = 3  # first characters of a form, to find its possible positions quickly
SWITCH = re.compile(r"\d?|true|false|yes|no|on|off|none|auto", re.IGNORECASE)
PATH = re.compile(r"(~|\.{0,2}/)[\w./~-]*")


def secrets_of(file_env: Mapping[str, str], env: Mapping[str, str], args: list[str]) -> list[str]:
    """Return the secrets in a launch's environment and arguments. file_env: variables that come from a file of
    secrets."""
    named = [*secrets_of_env(dict(file_env)), *secrets_of_env(dict(env)), *secrets_of_argv(args)]
    given = dict.fromkeys([*file_env.values(), *named])
    return [value for value in given if is_covered(value, named=value in named)]


def too_common(env: Mapping[str, str]) -> list[str]:
    """Return the variables that are named like a secret but have a value that is too common to mask. Switches such as
    "on" do not count."""
    return [
        name
        for name, value in env.items()
        if SECRET_NAME.search(name) and not is_covered(value, named=True) and not SWITCH.fullmatch(value)
    ]


def is_covered(value: str, *, named: bool) -> bool:
    """Return whether a value must be masked. Masking short numbers, words and paths would make logs unreadable. named:
    whether the name of the variable or option suggests a secret.
    """
    if len(value) < (SHORTEST if named else SHORTEST_UNNAMED) or (PATH.fullmatch(value) and not named):
        return False
    if value.isdigit():
        return len(value) >= SHORTEST_NUMBER
    return len(value) > LONGEST_WORD or not WORD.fullmatch(value)


def forms_of(value: str) -> Iterator[str]:
    """Yield the forms in which programs may print a value."""
    data = value.encode("utf-8", "replace")
    yield value
    yield from (line for line in value.splitlines() if len(line) >= SHORTEST_UNNAMED)
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    if len(value) >= SHORTEST_UNNAMED:
        for before, first in ((0, 0), (1, 2), (2, 3)):
            # Neighbouring characters change the first and the last base64 digits.
            last = (len(data) + before) // 3 * 4 + (len(data) + before) % 3
            coded = base64.b64encode(b"\0" * before + data)[first:last].decode()
            yield from (coded, coded.translate({ord("+"): "-", ord("/"): "_"}))


class Redaction:
    """Masks these secrets. values: the values of the secrets."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = list(values)
        found = {form for value in self.values if len(value) >= SHORTEST for form in forms_of(value)}
        self.forms = sorted(found, key=lambda form: (-len(form), form))
        self.longest = len(self.forms[0]) if self.forms else 0
        self.heads = {form[:HEAD] for form in self.forms}

    def text(self, text: str) -> str:
        """Mask the secrets in a text. At a cut, a part of a secret is masked if it is at least a third of the
        secret."""
        out, place = [], 0
        for begin, end in joined([*self.spans(text), *(span for form in self.forms for span in remains(form, text))]):
            out += [text[place:begin], MASK]
            place = end
        return "".join([*out, text[place:]])

    def shape(self, value: Any) -> Any:
        """Mask every text in nested lists and mappings, including keys, which may come from nodes."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.shape(key): self.shape(entry) for key, entry in value.items()}
        return [self.shape(entry) for entry in value] if isinstance(value, (list, tuple)) else value

    def stream(self) -> RedactedStream:
        return RedactedStream(self)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the positions of all forms in the text, in order. Overlapping positions are merged."""
        # One form at a time: one regular expression for all forms is ten times slower.
        return joined(span for form in self.forms for span in places(form, text))

    def beginning(self, text: str) -> int:
        """Return the index near the end of the text at which a form might begin. If no form can begin there, return the
        length of the text."""
        before = max(0, len(text) - self.longest + 1)
        end = text[before:]
        likely = {place for head in self.heads for place, _ in places(head, end)}
        likely.update(range(max(0, len(end) - HEAD + 1), len(end)))
        return before + next((place for place in sorted(likely) if self.begins(end[place:])), len(end))

    def begins(self, text: str) -> bool:
        return any(form.startswith(text) for form in self.forms)

    def rest(self, text: str) -> int:
        """Return how many characters at the beginning of the text are the end of a form whose beginning is missing."""
        ends = (
            length
            for form in self.forms
            for length in range(min(len(form) - 1, len(text)), edge(form), -1)
            if text.startswith(form[-length:])
        )
        return max(ends, default=0)


class RedactedStream:
    """Masks a text that arrives in pieces. The end of a piece is held back while it might be the beginning of a
    secret."""

    def __init__(self, redaction: Redaction) -> None:
        self.known = redaction
        self.held = ""
        self.shown = 0  # characters at the beginning of `held` whose mask has been output
        self.torn = False  # whether text is missing before `held`

    def feed(self, piece: str) -> str:
        """Return as much of the text as can be output now."""
        if not self.known.forms:
            return piece
        text = self.held + piece
        if self.torn:
            if any(text in form for form in self.known.forms):
                self.held = text
                return ""
            self.torn = False
            return self.release(text, self.known.rest(text), self.known.beginning(text))
        return self.release(text, 0, self.known.beginning(text))

    def gap(self) -> str:
        """Return the text that was held back before a gap in the stream. The next piece does not continue this text."""
        text, self.held = self.held, ""
        hidden = min(self.shown, len(text))
        self.shown = 0
        cut = any(len(text) > edge(form) for form in self.known.forms if text in form)
        self.torn = True
        return "" if hidden == len(text) else (MASK if cut else text[hidden:])

    def release(self, text: str, rest: int, hold: int) -> str:
        """Return the masked text up to `hold`. rest: number of characters at the beginning of the text that are always
        masked."""
        out = []
        place = self.shown
        spans = self.known.spans(text)
        if rest:
            spans.insert(0, (0, rest))
        self.shown = 0
        for begin, end in spans:
            if begin >= hold:
                break
            out += [text[place:begin]] + ([MASK] if begin >= place and end > place else [])
            place = max(place, end)
        self.held = text[hold:]
        self.shown = max(0, place - hold)
        return "".join([*out, text[place:hold]])


def places(form: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of a form in a text, including overlapping ones."""
    begin = text.find(form)
    while begin >= 0:
        yield begin, begin + len(form)
        begin = text.find(form, begin + 1)


def remains(form: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions where only the beginning or the end of a form remains because the rest was cut off."""
    least = max(LONGEST_EDGE, len(form) // 3)
    for begin, end in places(form[:least], text):
        more = zip(form[least:], text[end:], strict=False)
        yield begin, end + sum(1 for _ in takewhile(alike, more))
    for begin, end in places(form[-least:], text):
        more = zip(reversed(form[:-least]), reversed(text[:begin]), strict=False)
        yield begin - sum(1 for _ in takewhile(alike, more)), end


def alike(letters: tuple[str, str]) -> bool:
    return letters[0] == letters[1]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the positions in order. Overlapping positions are merged."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def edge(form: str) -> int:
    return min(LONGEST_EDGE, len(form) // 3)
