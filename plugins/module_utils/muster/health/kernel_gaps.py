"""What may have been in a part of the kernel's log that is not there, or did not fit: not found is not looked, then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.words import age, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Check
    from ..verdict.finding import Skipped


def not_seen(log: Mapping[str, Any], windows: Mapping[tuple[Check, str], float]) -> Iterator[Skipped]:
    """windows: how many seconds back a check looks, by the check and the kind of lines that it reads."""
    for (check, kind), within in windows.items():
        if count := log["cut"].get(kind):
            yield check.skip(f"{plural(count, 'line')} of the kernel's log about this did not fit, and were not judged")
        elif log["reach"] is not None and log["reach"] < within:
            yield check.skip(f"the kernel's log goes back {age(log['reach'])} only, and not to the start")
