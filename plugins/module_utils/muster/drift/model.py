"""Data types of the drift check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.check import Check


class Subject(NamedTuple):
    """The item that differs, named as in log files. kind: package, file, unit, sysctl, part, word or boot."""

    kind: str
    name: str


@dataclass(frozen=True)
class DriftDifference:
    """One difference on one node. what: its description for users, without the node name. tag: tag of the step that
    manages the item.

    value: the present value, if it may appear in logs.
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
    """The result of a step's task for one node; see results.taken.

    sentences: the differences. sides: for each compared file, the lines that only the present state has and the lines
    that only the planned state has.
    """

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
    """One transaction in apt's history. packages: the differing packages that the transaction changed."""

    begin: float
    end: float
    command: str
    by: str
    packages: list[str]


class LogLine(TypedDict):
    at: float
    text: str


class Changed(TypedDict, total=False):
    """The last change of a file. gone: whether the file is missing; `at` is then the last change of its folder."""

    at: float
    owner: str
    mode: str
    path: str
    gone: bool


@dataclass(frozen=True)
class History:
    """Logs and file times of a node; see muster_node/drift/history.py. booted: when the node last booted."""

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
    """Where a change came from: its time (0 if unknown), its author ("" if unknown), the command, and the log that
    proves it.

    kind: person, muster, unattended or unknown. others: other possible authors.
    """

    at: float = 0.0
    by: str = ""
    how: str = ""
    source: str = ""
    kind: str = "unknown"
    others: tuple[str, ...] = ()
