"""The kernel's own log since the start: lines that a cluster has to do with, each with its age.

Noise must not hide a fault: lines are sorted by kind first, and each kind is bounded by itself. What did not fit is
counted, and so is how far back the log goes, since neither counts as looked at.
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
# A whole ring buffer of messages can be asked for in less; a journal on a slow disk takes a while.
SECONDS = 8.0
# The first line of a kernel is its version, at 0 s; a log that begins later has lost some.
FROM_THE_START = 30.0


def look() -> dict[str, Any]:
    """Return {why, source, lines: [{age, text, kind, which}], read, reach, cut}.

    The journal goes further back than the ring buffer.
    reach: the age of the oldest line that was there; None where that is the kernel's first. cut: {kind: how many lines
    did not fit}, without repetitions of what is among those that did.
    """
    # The newest first: what is too much is at the end then.
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
        source, why = "dmesg", ring.why or journal.why or "the kernel's log is empty"
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
    """which: what tells it from others of its kind."""
    kind, which = kind_of(text)
    return {"age": round(age), "text": text[:400], "kind": kind, "which": list(which)}


def sort(lines: Iterable[tuple[float, str]]) -> tuple[list[tuple[float, str]], dict[str, int]]:
    """Return the lines that are worth it, the oldest first, and how many of each kind did not fit."""
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
