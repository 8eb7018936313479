"""A table of the results of repeated tests."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TURN = re.compile(r"-?turn\d+")


def table(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table. stats: pytest's reports by outcome."""
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    failed: set[str] = set()
    for outcome in ("passed", "failed", "error", ""):
        for report in stats.get(outcome, ()):
            if TURN.search(report.nodeid):
                seconds[name_of(report.nodeid)][report.nodeid] += report.duration
                failed |= {report.nodeid} if report.failed else set()
    yield "| test | runs | failures | median, s |"
    yield "|---|---|---|---|"
    for name, runs in seconds.items():
        yield f"| `{name}` | {len(runs)} | {len(failed & runs.keys())} | {median(runs.values()):.0f} |"


def name_of(nodeid: str) -> str:
    """Return the test name without the folder and the repetition number."""
    return TURN.sub("", nodeid.rpartition("/")[2]).replace("[]", "")
