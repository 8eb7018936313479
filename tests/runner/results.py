"""Results of stages: outcome, duration, test counts, and the result table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .stage import Stage

PASSED, FAILED, STOPPED, NOT_RUN = "passed", "FAILED", "stopped", "not run"


@dataclass
class Counts:
    """Number of tests of a stage by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


@dataclass
class Result:
    """The result of a stage. seconds: wall-clock time. retried: tests that passed only at the second attempt."""

    stage: Stage
    outcome: str
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    retried: list[str] = field(default_factory=list)
    why: str = ""


def read_counts(report: Path) -> Counts:
    """Read the counts in a JUnit report. Return zeros if there is no report."""
    root = read_report(report)
    if root is None:
        return Counts()
    total = Counts()
    for suite in root.iter("testsuite"):
        number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        failed = number["failures"] + number["errors"]
        total += Counts(number["tests"] - failed - number["skipped"], failed, number["skipped"])
    return total


def read_failed(report: Path) -> list[str]:
    """Return the names of failed tests in a JUnit report."""
    root = read_report(report)
    if root is None:
        return []
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]


def read_report(report: Path) -> ET.Element | None:
    """Read a JUnit report from pytest. Return None if the report is missing or incomplete."""
    parser: Any = ET.XMLPullParser(["start"])
    try:
        parser.feed(report.read_text())
        parser.close()
        _, root = next(parser.read_events())
    except (OSError, ET.ParseError, StopIteration):
        return None
    assert isinstance(root, ET.Element)
    return root


def last_time(path: Path, stage: Stage) -> str:
    """Return the last duration of a stage as text. The duration is from this machine or else from stages.yml."""
    try:
        here = json.loads(path.read_text()).get(stage.name)
    except (OSError, ValueError):
        here = None
    if here:
        return f"{clock(here)} last time here"
    return f"{clock(stage.seconds)} as recorded" if stage.seconds else "not measured"


def keep_seconds(path: Path, name: str, seconds: float) -> None:
    """Record the duration of a stage on this machine."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = {}
    kept[name] = round(seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1))


def clock(seconds: float) -> str:
    """Return seconds as m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def table(results: Iterable[Result]) -> str:
    """Return the table of a run with one line per stage."""
    return "\n".join([f"{'stage':<14} {'time':>6}  result", *map(row, results)])


def row(result: Result) -> str:
    seconds = clock(result.seconds) if result.seconds else "-"
    return f"{result.stage.name:<14} {seconds:>6}  {describe(result)}"


def describe(result: Result) -> str:
    text = result.outcome
    if result.counts != Counts():
        text += f" ({result.counts})"
    if result.why:
        text += f": {result.why}"
    if result.outcome == FAILED:
        text += f"; run it alone: script/test {result.stage.name}"
    return text
