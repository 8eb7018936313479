"""Generate docs/dev/test_seconds.md from the last reports: the duration of each stage and of the stage's slow tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .results import clock, read_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEAD = """# Seconds of the tests

`script/test seconds` writes this page from the reports in `artifacts/tests`. The stages ran in two lanes on two cores,
so every figure includes what the other lane took. A test's figure includes the fixtures that it was the first to need.
Tests below {least:.0f} s are one row.
"""
LEAST = 5.0  # seconds from which a test has its own row

Seconds = list[tuple[str, float]]


def read_seconds(report: Path) -> Seconds:
    """Return the tests in a JUnit report with their durations in seconds, slowest first."""
    root = read_report(report)
    if root is None:
        return []
    found = [
        (f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}", float(case.get("time", "0")))
        for case in root.iter("testcase")
    ]
    return sorted(found, key=lambda one: -one[1])


def page(stages: Sequence[str], kept: Mapping[str, float], tests: Mapping[str, Seconds]) -> str:
    """Build the page. kept: duration of each stage in seconds. tests: durations of the tests by stage."""
    parts = [HEAD.format(least=LEAST)]
    for stage in (one for one in stages if one in kept):
        parts.append(f"## {stage}: {clock(kept[stage])}\n")
        if found := tests.get(stage):
            parts.append("\n".join(["| test | s |", "|---|---|", *rows(found)]) + "\n")
    return "\n".join(parts)


def rows(found: Seconds) -> list[str]:
    slow = [f"| `{escaped(name)}` | {seconds:.0f} |" for name, seconds in found if seconds >= LEAST]
    rest = [seconds for _, seconds in found if seconds < LEAST]
    return [*slow, f"| {len(rest)} others | {sum(rest):.0f} |"]


def escaped(name: str) -> str:
    return name.replace("|", "\\|").replace("\n", " ")
