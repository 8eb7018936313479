"""The shapes that the rules of this folder work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.check import Check


class Subject(NamedTuple):
    """What differs, as logs and files know it. kind: package, file, unit, sysctl, part, word or boot."""

    kind: str
    name: str


@dataclass(frozen=True)
class DriftDifference:
    """One thing that differs on one node. what: for people, without the node. tag: of the step that owns it.

    value: what it has become, where a log would name that.
    """

    node: str
    check: Check
    what: str
    observed: str = ""
    expected: str = ""
    tag: str = ""
    subjects: tuple[Subject, ...] = ()
    value: str = ""


class Taken(TypedDict):
    """What a step's task said of one node; see results.taken. sentences: what differs. sides: by what a diff is of, the
    lines that are there alone, and those that shall be."""

    node: str
    role: str
    task: str
    changed: bool
    failed: bool
    unreachable: bool
    message: str
    sentences: list[str]
    packages: list[str]
    sysctl: list[str]
    sides: dict[str, list[list[str]]]


class PackageVersion(TypedDict):
    at: float
    action: str
    package: str
    before: str
    after: str


class Apt(TypedDict):
    """packages: of those that differ, the ones with which it did something."""

    begin: float
    end: float
    command: str
    by: str
    packages: list[str]


class LogLine(TypedDict):
    at: float
    text: str


class Changed(TypedDict, total=False):
    """Of a file. gone: it is not there, and `at` is when its folder was changed last."""

    at: float
    owner: str
    mode: str
    path: str
    gone: bool


@dataclass(frozen=True)
class History:
    """What a node's logs and files say; see muster_node/drift/history.py. booted: when it was started last."""

    dpkg: Sequence[PackageVersion] = ()
    apt: Sequence[Apt] = ()
    sudo: Sequence[LogLine] = ()
    muster: Sequence[LogLine] = ()
    files: Mapping[str, Changed] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Changed] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    booted: float = 0.0
    since: float = 0.0


@dataclass(frozen=True)
class Origin:
    """When something was changed (0: unknown), by whom ("" : unknown), how, and which log says so.

    kind: person, muster, unattended, or unknown. others: who else it may have been.
    """

    at: float = 0.0
    by: str = ""
    how: str = ""
    source: str = ""
    kind: str = "unknown"
    others: tuple[str, ...] = ()
