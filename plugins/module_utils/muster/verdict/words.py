"""Numbers and names in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Return "1 node" or "3 nodes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def few(names: Sequence[str], between: str = ", ") -> str:
    """Return all names of a few, and of many the first three and how many more there are."""
    return between.join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
