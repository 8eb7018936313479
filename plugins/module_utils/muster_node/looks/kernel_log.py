"""Collect relevant lines of the kernel log since boot, with their age.

Each kind of line has its own limit, so that noise cannot hide a fault. Lines over the limit are counted, and the age of
the oldest line is returned. Checks are skipped if the lines that they need are missing.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..tools.kernel_lines import KINDS, from_journal, from_ring, kind_of
from ..tools.run import run

if TYPE_CHECKING:
    from collections.abc import Iterable


MOST_READ = 100_000
MOST_BYTES = 24_000_000
# Reading the ring buffer takes less; a journal on a slow disk takes longer.
SECONDS = 8.0
# The kernel's first line is its version, at 0 s; a log that begins later is incomplete.
FROM_THE_START = 30.0


def look() -> dict[str, Any]:
    """Return {why, source, lines: [{age, text, kind, which}], read, reach, cut}.

    The journal reaches further back than the ring buffer. reach: age of the oldest line; None if the log is complete.
    cut: {kind: number of lines over the limit}; repetitions of returned lines are not counted.
    """
    # The newest first: a limit cuts the oldest lines.
    newest = ("--reverse", f"--lines={MOST_READ}")
    journal = run(
        *("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", *newest, "--output=short-monotonic"),
        seconds=SECONDS,
        most=MOST_BYTES,
    )
    lines = from_journal(journal.text)
    source, why = "journalctl -k -b", ""
    if not lines:
        ring = run("dmesg", "--raw", most=MOST_BYTES)
        lines = from_ring(ring.text)
        source, why = "dmesg", ring.why or journal.why or "the kernel log is empty"
    now = time.monotonic()
    worth, cut = sort(lines)
    return {
        "why": "" if lines else why,
        "source": source,
        "lines": [line_of(text, now - when) for when, text in worth],
        "read": len(lines),
        "reach": round(now - lines[0][0]) if lines and lines[0][0] > FROM_THE_START else None,
        "cut": cut,
    }


def line_of(text: str, age: float) -> dict[str, Any]:
    """Return a line with its kind. which: the parts that distinguish it from other lines of its kind."""
    kind, which = kind_of(text)
    return {"age": round(age), "text": text[:400], "kind": kind, "which": list(which)}


def sort(lines: Iterable[tuple[float, str]]) -> tuple[list[tuple[float, str]], dict[str, int]]:
    """Return the relevant lines, the oldest first, and the number of lines over the limit by kind."""
    kept: list[tuple[float, str]] = []
    same: Counter[tuple[str | None, ...]] = Counter()
    of_kind: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for when, text in reversed(list(lines)):
        name, which = kind_of(text)
        line = (name, *which)
        if not name or same[line] >= KINDS[name].each:
            continue
        if of_kind[name] >= KINDS[name].most:
            cut[name] += 1
            continue
        same[line] += 1
        of_kind[name] += 1
        kept.append((when, text))
    return kept[::-1], dict(cut)
