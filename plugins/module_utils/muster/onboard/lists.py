"""Parse lists of nodes: Slurm's node[01-04], hostfiles, and the hosts in an ssh config."""

from __future__ import annotations

import fnmatch
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 1024  # names of one list
MOST_LINES = 10_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z", re.ASCII)


@dataclass(frozen=True)
class HostfileLine:
    """A node in a hostfile. address: "" if the line contains only one word. slots: 0 if not given."""

    name: str
    address: str = ""
    slots: int = 0
    number: int = 0


def expand(text: str) -> list[str]:
    """Return the names in a list such as gpu[01-04,7],head. Raises ValueError with the problem."""
    found: list[str] = []
    for part in split(text):
        found += _expanded(part)
        if len(found) > MOST:
            raise ValueError(f"{text[:80]} lists more than {MOST} nodes")
    return found


def split(text: str) -> list[str]:
    """Split a list at commas and spaces that are outside of brackets. Raises ValueError."""
    parts, part, depth = [], "", 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise ValueError(f"{text[:80]} has unbalanced brackets")
        if not depth and (letter == "," or letter.isspace()):
            parts.append(part)
            part = ""
        else:
            part += letter
    if depth:
        raise ValueError(f"{text[:80]} has an unclosed bracket")
    return [one for one in (*parts, part) if one]


def _expanded(part: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, after = rest.partition("]")
    ends = _expanded(after)
    numbers = [number for one in inside.split(",") for number in _numbers(one.strip(), part)]
    if len(numbers) * len(ends) > MOST:
        raise ValueError(f"{part[:80]} lists more than {MOST} nodes")
    return [f"{before}{number}{end}" for number in numbers for end in ends]


def _numbers(text: str, part: str) -> list[str]:
    found = _RANGE.match(text)
    if not found:
        raise ValueError(f"{part[:80]} has {text[:20] or 'nothing'} in brackets; use numbers, such as gpu[01-04,7]")
    first, last = found[1], found[2] or found[1]
    if int(last) < int(first):
        raise ValueError(f"{part[:80]} has a descending range from {first} to {last}")
    if int(last) - int(first) >= MOST:
        raise ValueError(f"{part[:80]} lists more than {MOST} nodes")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def hostfile(text: str) -> tuple[list[HostfileLine], list[str]]:
    """Return the lines of a hostfile, and problems such as "line 3: ...".

    A line has the form `name address [slots=N]` or `name-or-address [slots=N]`. # starts a comment.
    """
    found, problems = [], []
    for number, written in enumerate(text.splitlines()[:MOST_LINES], 1):
        words = written.partition("#")[0].split()
        if not words:
            continue
        given = [word for word in words if word.startswith(("slots=", "max_slots=", "max-slots="))]
        places = [word for word in words if word not in given]
        slots = next((word.partition("=")[2] for word in given if word.startswith("slots=")), "0")
        if not 1 <= len(places) <= 2:
            problems.append(
                f"line {number}: expected a name, an address and optionally slots=N, but found {len(words)} words"
            )
        elif not (slots.isascii() and slots.isdecimal() and len(slots) <= 4):
            problems.append(f"line {number}: slots is {slots[:20]!r}, which is not a number")
        else:
            found.append(HostfileLine(places[0], places[1] if len(places) == 2 else "", int(slots), number))
    return found, problems


def commands(text: str) -> list[tuple[int, str]]:
    """Return line numbers and keywords of the lines in an ssh config that make ssh run a command, or that include
    another file, which may contain such lines.

    ssh accepts more forms of quotation marks, blanks and = than this parser. A line with quotation marks is therefore
    reported if its words could be one of these keywords.
    """
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        words = [word.lstrip("!") for word in re.split(r"[\s=]+", line.lower()) if word]
        joined = "".join(re.split(r"[\s=\"'\\]+", line.lower()))
        quoted = set(line) & set("\"'\\")
        may_match, may_include = (quoted and joined.startswith(word) for word in ("match", "include"))
        if (words[:1] == ["match"] and "exec" in words) or (may_match and "exec" in joined):
            found.append((number, "Match exec"))
        elif words[:1] == ["include"] or may_include:
            found.append((number, "Include"))
    return found


def aliases(text: str) -> list[str]:
    """Return the distinct hosts in an ssh config, without patterns."""
    found: list[str] = []
    for line in text.splitlines()[:MOST_LINES]:
        keyword, rest = _setting(line)
        if keyword == "host":
            found += [word for word in rest if not set(word) & set("*?!")]
    return list(dict.fromkeys(found))


def _setting(line: str) -> tuple[str, Sequence[str]]:
    try:
        words = shlex.split(re.sub(r"^(\s*\w+)\s*=\s*", r"\1 ", line), comments=True)
    except ValueError:  # an unclosed quotation mark, which ssh reports itself
        return "", ()
    return (words[0].lower(), words[1:]) if words else ("", ())


def chosen(known: Sequence[str], wanted: str) -> tuple[list[str], list[str]]:
    """Return the hosts that match the names and patterns ("" for all hosts), and the patterns that match no host."""
    if not wanted.strip():
        return list(known), []
    found: dict[str, None] = {}
    missing = []
    for pattern in _patterns(wanted):
        names = [name for name in known if fnmatch.fnmatchcase(name, pattern)]
        found.update(dict.fromkeys(names))
        missing += [] if names else [pattern]
    return [name for name in known if name in found], missing


def _patterns(wanted: str) -> Iterator[str]:
    for part in split(wanted):
        yield from _expanded(part)
