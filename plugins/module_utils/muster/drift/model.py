"""Data types of the drift check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.check import Check


class Subject(NamedTuple):
    """What differs, by the name that logs and files use. kind: package, file, unit, sysctl, part, word or boot."""

    kind: str
    name: str


@dataclass(frozen=True)
class DriftDifference:
    """One difference on one node. what: shown to users, without the node. tag: of the step that manages it.

    value: the present value, if logs may name it.
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
    """The result of a step's task for one node; see results.taken. sentences: the differences. sides: by subject of a
    diff, the lines that only the present state has, and the lines that only the planned state has."""

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
    """packages: those of the differing packages that it changed."""

    begin: float
    end: float
    command: str
    by: str
    packages: list[str]


class LogLine(TypedDict):
    at: float
    text: str


class Changed(TypedDict, total=False):
    """The state of a file. gone: the file is missing, and `at` is the last change of its folder."""

    at: float
    owner: str
    mode: str
    path: str
    gone: bool


@dataclass(frozen=True)
class History:
    """Logs and file times of a node; see muster_node/drift/history.py. booted: time of the last boot."""

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
    """The time of a change (0: unknown), its author ("": unknown), the command, and the log with the evidence.

    kind: person, muster, unattended, or unknown. others: possible authors.
    """

    at: float = 0.0
    by: str = ""
    how: str = ""
    source: str = ""
    kind: str = "unknown"
    others: tuple[str, ...] = ()
