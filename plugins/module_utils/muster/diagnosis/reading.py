"""What nodes say for a diagnosis, read as the foreign input that it is: only what has the shape that evidence.py gives.

The shapes themselves say what is read. Texts become printable, on one line, and are cut; lists and mappings are cut;
numbers are finite. An entry of a list or mapping that does not fit is left out as a whole. Of what a shape must have, a
part that does not fit is empty, and `unseen` says so: nobody may take it for "there is nothing".
"""

from __future__ import annotations

import math
import types
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from ..verdict.printable import printable

MOST_TEXT = 500  # characters
MOST_NAME = 128  # of a key
MOST_ENTRIES = 512  # of a list, or of a mapping
MOST_PART = 150_000  # characters and entries of one part: none takes another one's room
MOST_NUMBER = 2**64
NO_USE = "what the node says of it is of no use"
UNSEEN = "unseen"
NOTHING = object()  # in the place of what does not fit


class UnusableError(ValueError):
    """Says what is wrong with an answer."""


def read(shape: type, given: Any) -> tuple[Any, tuple[str, ...]]:
    """What can be used of it, and the names of what was dropped. shape: a TypedDict. Raises UnusableError."""
    if not isinstance(given, dict):
        raise UnusableError("it is no object")
    reading = Reading()
    found: dict[str, Any] = {}
    for name, kind in hints(shape).items():
        reading.left = MOST_PART
        value = reading.fit(kind, given.get(name, NOTHING), name)
        if value is NOTHING:
            reading.drop(name)
            value = empty(kind, name)
        found[name] = value
    if UNSEEN in found:
        lost = dict.fromkeys((name for name in reading.lost if name != UNSEEN), NO_USE)
        found[UNSEEN] = {**found[UNSEEN], **lost}
    return found, tuple(reading.lost)


def read_all(shape: type, given: Any) -> tuple[list[Any], bool]:
    """Those of a list that fit, and whether all did."""
    reading = Reading()
    found = reading.entries(shape, given, "entries")
    return ([], False) if found is NOTHING else (found, not reading.lost)


@cache
def hints(shape: type) -> dict[str, Any]:
    return get_type_hints(shape)


def empty(kind: Any, name: str) -> Any:
    """What stands for a part that is not there. Raises UnusableError for a number, of which none is empty."""
    kinds = options(kind)
    if type(None) in kinds:
        return None
    origin = get_origin(kind) or kind
    if origin in (list, dict, str):
        return origin()
    raise UnusableError(f"{name} is missing, or no {getattr(origin, '__name__', origin)}")


def options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


class Reading:
    """One answer. lost: of which parts something was left out."""

    def __init__(self) -> None:
        self.left = MOST_PART
        self.lost: list[str] = []

    def drop(self, part: str) -> None:
        if part not in self.lost:
            self.lost.append(part)

    def fit(self, kind: Any, given: Any, part: str) -> Any:
        """What it is as this kind, or NOTHING. part: of which part of the answer it is."""
        self.left -= 1
        if self.left < 0:
            return NOTHING
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            fitting = (self.fit(one, given, part) for one in get_args(kind))
            return next((value for value in fitting if value is not NOTHING), NOTHING)
        if origin is list:
            return self.entries(get_args(kind)[0], given, part)
        if origin is dict:
            return self.mapping(get_args(kind)[1], given, part)
        if is_typeddict(kind):
            return self.shape(kind, given, part)
        return self.text(given, MOST_TEXT) if kind is str else plain(kind, given)

    def entries(self, kind: Any, given: Any, part: str) -> Any:
        if not isinstance(given, list):
            return NOTHING
        found = [value for one in given[:MOST_ENTRIES] if (value := self.fit(kind, one, part)) is not NOTHING]
        if len(found) != len(given):
            self.drop(part)
        return found

    def mapping(self, kind: Any, given: Any, part: str) -> Any:
        if not isinstance(given, dict):
            return NOTHING
        found = {}
        for key, one in list(given.items())[:MOST_ENTRIES]:
            name, value = self.text(key, MOST_NAME), self.fit(kind, one, part)
            if name is not NOTHING and value is not NOTHING:
                found[name] = value
        if len(found) != len(given):
            self.drop(part)
        return found

    def shape(self, kind: Any, given: Any, part: str) -> Any:
        if not isinstance(given, dict):
            return NOTHING
        found = {}
        for name, each in hints(kind).items():
            value = self.fit(each, given.get(name, NOTHING), part)
            if value is NOTHING:
                return NOTHING
            found[name] = value
        return found

    def text(self, given: Any, most: int) -> Any:
        if not isinstance(given, str):
            return NOTHING
        said = printable(given[:most]).replace("\n", "\N{SYMBOL FOR LINE FEED}").replace("\t", " ")[:most]
        self.left -= len(said)
        return said if self.left >= 0 else NOTHING


def plain(kind: Any, given: Any) -> Any:
    if kind is type(None):
        return None if given is None else NOTHING
    if kind is bool:
        return given if isinstance(given, bool) else NOTHING
    usable = isinstance(given, int) and not isinstance(given, bool)
    if kind is float:
        usable = usable or (isinstance(given, float) and math.isfinite(given))
    return given if usable and abs(given) < MOST_NUMBER else NOTHING
