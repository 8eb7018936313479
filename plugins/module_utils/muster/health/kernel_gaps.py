"""Skip checks for which the kernel log is incomplete, because lines are missing or the log starts too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.words import age, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Check
    from ..verdict.finding import Skipped


def not_seen(log: Mapping[str, Any], windows: Mapping[tuple[Check, str], float]) -> Iterator[Skipped]:
    """Yield a skip for each check whose part of the log is missing. windows: the seconds of the log that a check
    requires, by check and kind of line."""
    for (check, kind), within in windows.items():
        if count := log["cut"].get(kind):
            yield check.skip(f"{plural(count, 'matching line')} of the kernel log not read (limit exceeded)")
        elif log["reach"] is not None and log["reach"] < within:
            yield check.skip(f"the kernel log covers only the last {age(log['reach'])}")
