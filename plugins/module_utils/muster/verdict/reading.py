"""Parser for untrusted input, such as answers of nodes. It returns only parts that have the declared shape.

A shape is a TypedDict or a dataclass. Its annotations declare the types, and `Limit` declares further conditions. Texts
are made printable, put on one line and cut; lists and mappings are cut; numbers are finite. An invalid entry of a list
or mapping is dropped completely. An invalid required part becomes empty, and `unseen` records this, so that the part is
not mistaken for one that is really empty.
"""

from __future__ import annotations

import dataclasses
import math
import types
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .printable import ForeignText, printable

if TYPE_CHECKING:
    import re

MOST_TEXT = 500  # characters
MOST_NAME = 128  # of a key
MOST_ENTRIES = 512  # of a list, or of a mapping
MOST_PART = 150_000  # characters and entries of each part
MOST_NUMBER = 2**64
MOST_SHOWN = 60  # characters of a value quoted in an error
NO_USE = "the node's answer is invalid"
UNSEEN = "unseen"
NOTHING = object()  # stands for a missing or invalid value
TEXTS = (str, ForeignText)
CALLED: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", list: "a list"}

Shape = TypeVar("Shape")


class UnusableError(ValueError):
    """Names the invalid field of an answer, the expected type and the actual value."""


class Limit(NamedTuple):
    """Conditions in addition to the type: Annotated[int, Limit(least=0)].

    least, below: range of a number. most: maximum number of characters of a text, or entries of a list or mapping; the
    rest is cut. pattern: must match the whole text. raw: the text stays unchanged, with its lines. instead: default for
    an invalid value, which is then not an error. whole: a list or mapping is invalid if any entry would be dropped.
    needed: the whole answer is invalid if this part is missing.
    """

    least: float = -MOST_NUMBER
    below: float = MOST_NUMBER
    most: int | None = None
    pattern: re.Pattern[str] | None = None
    raw: bool = False
    instead: Any = NOTHING
    whole: bool = False
    needed: bool = False


NO_LIMIT = Limit()
Count = Annotated[int, Limit(least=0, below=2**53)]
Flag = Annotated[bool, Limit(instead=False)]
Word = Annotated[str, Limit(most=200, instead="")]


def read(shape: type[Shape], given: Any) -> tuple[Shape, tuple[str, ...]]:
    """Parse an answer. Return its valid parts and the names of parts from which data was dropped. Raises
    UnusableError."""
    if not isinstance(given, dict):
        raise UnusableError(f"expected an object, got {shown(given)}")
    reading, kinds = AnswerReading(), cast("Any", shape)
    found: dict[str, Any] = {}
    for name, kind in hints(kinds).items():
        reading.left, reading.problem = MOST_PART, ""
        value = reading.fit(kind, given.get(name, NOTHING), name)
        if value is NOTHING:
            if name in optional(kinds) and name not in given:
                continue
            reading.drop(name)
            if name in optional(kinds):
                continue
            value = empty(kind, reading.problem or expected(name, kind, given.get(name, NOTHING)))
        found[name] = value
    if UNSEEN in found:
        lost = dict.fromkeys((name for name in reading.lost if name != UNSEEN), NO_USE)
        found[UNSEEN] = {**found[UNSEEN], **lost}
    return shape(**found), tuple(reading.lost)


def read_all(shape: type[Shape], given: Any) -> tuple[list[Shape], bool]:
    """Return the valid entries of a list, and whether all entries were valid."""
    reading = AnswerReading()
    found = reading.entries(shape, given, "entries", NO_LIMIT)
    return ([], False) if found is NOTHING else (found, not reading.lost)


def read_one(kind: Any, given: Any) -> Any:
    """Return a value as the given type; None if the value is invalid."""
    found = AnswerReading().fit(kind, given, "")
    return None if found is NOTHING else found


@cache
def hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


@cache
def optional(shape: Any) -> frozenset[str]:
    """Return the names of fields that can be missing. In a dataclass, these are the fields with a default."""
    if not dataclasses.is_dataclass(shape):
        return frozenset(vars(shape)["__optional_keys__"])
    defaults = {one.name: (one.default, one.default_factory) for one in dataclasses.fields(shape)}
    return frozenset(name for name, given in defaults.items() if given != (dataclasses.MISSING, dataclasses.MISSING))


def empty(kind: Any, problem: str) -> Any:
    """Return the empty value that replaces a missing part. Raises UnusableError for a type that has none, such as a
    number."""
    kinds, limit = options(kind), limit_of(kind)
    if type(None) in kinds:
        return None
    origin = get_origin(kinds[0]) or kinds[0]
    if origin in (list, dict, *TEXTS) and not limit.needed:
        return origin("") if origin in TEXTS else origin()
    raise UnusableError(problem)


def options(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def limit_of(kind: Any) -> Limit:
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((one for one in reversed(notes) if isinstance(one, Limit)), NO_LIMIT)


def expected(name: str, kind: Any, given: Any) -> str:
    origins = [get_origin(one) or one for one in options(kind) if one is not type(None)]
    names = " or ".join("a text" if one in TEXTS else CALLED.get(one, "an object") for one in origins)
    return f"{name}: expected {names}, got {shown(given)}"


def shown(given: Any) -> str:
    if given is NOTHING:
        return "nothing"
    if isinstance(given, (dict, list)):
        return "an object" if isinstance(given, dict) else "a list"
    return printable(repr(given[:MOST_SHOWN] if isinstance(given, str) else given))[: MOST_SHOWN + 2]


def is_shape(kind: Any) -> bool:
    return is_typeddict(kind) or dataclasses.is_dataclass(kind)


class AnswerReading:
    """Parses one answer. lost: parts from which data was dropped. problem: the first invalid field of a part."""

    def __init__(self) -> None:
        self.left = MOST_PART
        self.lost: list[str] = []
        self.problem = ""

    def drop(self, part: str) -> None:
        if part not in self.lost:
            self.lost.append(part)

    def fit(self, kind: Any, given: Any, part: str, limit: Limit = NO_LIMIT) -> Any:
        """Return a value as this type, or NOTHING if the value is invalid. part: the part of the answer that contains
        the value."""
        self.left -= 1
        if self.left < 0:
            return NOTHING
        origin = get_origin(kind)
        if origin is Annotated:
            limit = limit_of(kind)
            found = self.fit(get_args(kind)[0], given, part, limit)
            return limit.instead if found is NOTHING else found
        if origin in (Union, types.UnionType):
            fitting = (self.fit(one, given, part, limit) for one in get_args(kind))
            return next((value for value in fitting if value is not NOTHING), NOTHING)
        if origin is list:
            return self.entries(get_args(kind)[0], given, part, limit)
        if origin is dict:
            return self.mapping(get_args(kind), given, part, limit)
        if kind is Any:
            return None if given is NOTHING else given
        if kind in TEXTS:
            found = self.text(given, limit, MOST_TEXT)
            return ForeignText(found) if kind is ForeignText and found is not NOTHING else found
        return self.shape(kind, given, part) if is_shape(kind) else plain(kind, given, limit)

    def entries(self, kind: Any, given: Any, part: str, limit: Limit) -> Any:
        if not isinstance(given, list):
            return NOTHING
        some = given[: limit.most or MOST_ENTRIES]
        found = [value for one in some if (value := self.fit(kind, one, part)) is not NOTHING]
        if len(found) != len(given):
            self.drop(part)
            return NOTHING if limit.whole else found
        return found

    def mapping(self, kinds: tuple[Any, Any], given: Any, part: str, limit: Limit) -> Any:
        if not isinstance(given, dict):
            return NOTHING
        found = {}
        for key, one in list(given.items())[: limit.most or MOST_ENTRIES]:
            name, value = self.text(key, limit_of(kinds[0]), MOST_NAME), self.fit(kinds[1], one, part)
            if name is not NOTHING and value is not NOTHING:
                found[name] = value
        if len(found) != len(given):
            self.drop(part)
            return NOTHING if limit.whole else found
        return found

    def shape(self, kind: Any, given: Any, part: str) -> Any:
        if not isinstance(given, dict):
            return NOTHING
        found = {}
        for name, each in hints(kind).items():
            value = self.fit(each, given.get(name, NOTHING), part)
            if value is not NOTHING:
                found[name] = value
            elif name not in optional(kind):
                self.problem = self.problem or expected(f"{part}.{name}", each, given.get(name, NOTHING))
                return NOTHING
        return kind(**found)

    def text(self, given: Any, limit: Limit, most: int) -> Any:
        if not isinstance(given, str) or (limit.pattern and not limit.pattern.fullmatch(given)):
            return NOTHING
        most = limit.most or most
        if limit.raw:
            return given[:most]
        said = printable(given[:most]).replace("\n", "\N{SYMBOL FOR LINE FEED}").replace("\t", " ")[:most]
        self.left -= len(said)
        return said if self.left >= 0 else NOTHING


def plain(kind: Any, given: Any, limit: Limit) -> Any:
    if kind is type(None):
        return None if given is None else NOTHING
    if kind is bool:
        return given if isinstance(given, bool) else NOTHING
    usable = isinstance(given, int) and not isinstance(given, bool)
    if kind is float:
        usable = usable or (isinstance(given, float) and math.isfinite(given))
    return given if usable and limit.least <= given < limit.below else NOTHING
