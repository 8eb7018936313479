"""Formats numbers and names for sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Return "1 node" or "3 nodes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def few(names: Sequence[str], between: str = ", ") -> str:
    """Join up to four names. If there are more, join the first three and add the number of the others."""
    return between.join(names) if len(names) <= 4 else f"{between.join(names[:3])} and {len(names) - 3} more"


def gigabytes(size: float) -> str:
    """Format a size, such as 1.5 GB."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}" if size < least * 1000 else f"{size / least:.0f} {unit}"
    return f"{size:.0f} bytes"


def age(seconds: float) -> str:
    """Format a duration in its largest unit, such as 3 hours."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return plural(round(seconds / length), unit)
    return f"{seconds:.0f} s"
