"""Data types of the drift check."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

from ..verdict.reading import Limit

if TYPE_CHECKING:
    from ..verdict.check import Check

Moment = Annotated[float, Limit(least=-(2**33), below=2**33)]  # datetime can represent every moment
FilePath = Annotated[str, Limit(most=500)]
Digest = Annotated[str, Limit(pattern=re.compile(r"[0-9a-f]{1,64}"), raw=True)]


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


class EnvironmentState(TypedDict):
    """name: "" if there is no environment. parts: the digest of each entry in site-packages."""

    name: str
    parts: Annotated[dict[str, Digest], Limit(most=2000)]


class InstalledState(TypedDict, total=False):
    """The state of a node, as muster_node/drift/facts.py returns it. Missing parts were not inspected."""

    kernel: str
    boot_id: str
    driver: str
    bus: list[str]
    firmware: dict[str, str]
    gpus: dict[str, str]
    packages: dict[str, str]
    environment: EnvironmentState
    named: dict[str, EnvironmentState]


class PresentState(InstalledState):
    booted: Moment
    unseen: dict[str, str]


class InstallationRecord(InstalledState, total=False):
    """See muster_node/drift/record.py. Empty if there is none."""

    at: Moment
    by: str
    run: str


class PackageVersion(TypedDict):
    at: Moment
    action: str
    package: str
    before: str
    after: str


class Apt(TypedDict):
    """One transaction in apt's history. packages: the differing packages that the transaction changed."""

    begin: Moment
    end: Moment
    command: str
    by: str
    packages: list[str]


class LogLine(TypedDict):
    at: Moment
    text: str


class Changed(TypedDict, total=False):
    """The last change of a file. gone: whether the file is missing; `at` is then the last change of its folder."""

    at: Moment
    owner: str
    mode: str
    path: FilePath
    gone: bool


@dataclass(frozen=True)
class History:
    """Logs and file times of a node; see muster_node/drift/history.py. booted: when the node last booted."""

    dpkg: list[PackageVersion] = field(default_factory=list)
    apt: list[Apt] = field(default_factory=list)
    sudo: list[LogLine] = field(default_factory=list)
    muster: list[LogLine] = field(default_factory=list)
    files: dict[FilePath, Changed] = field(default_factory=dict)
    units: dict[FilePath, Moment] = field(default_factory=dict)
    parts: dict[FilePath, Changed] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    booted: Moment = 0.0
    since: Moment = 0.0


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
