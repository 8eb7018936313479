"""The trial of shared folders: how fast nodes write and read there, all at once, and when each sees others' files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


UNFOLDED = 16  # nodes; of more, the slowest of each measure
SLOWEST = 2


def tables(kept: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """One for each folder; None where none was tried."""
    found = [
        {
            "path": one["path"],
            "megabytes": one["megabytes"],
            "count": len(one["nodes"]),
            **split(one["nodes"]),
            "together": {
                name: f"{sum(row[name] or 0.0 for row in one['nodes']):.0f}" if len(one["nodes"]) > 1 else ""
                for name in ("write", "read")
            },
        }
        for one in kept.get("folders", [])
    ]
    return found or None


def split(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The nodes that are shown at once, and the others."""
    worst = {"write": lambda row: row["write"] or 0.0, "read": lambda row: row["read"] or 0.0, "seen": late}
    odd = (
        [row for key in worst.values() for row in sorted(nodes, key=key)[:SLOWEST]] if len(nodes) > UNFOLDED else nodes
    )
    texts = [(row in odd, {**row, **{name: shown(row[name]) for name in worst}}) for row in nodes]
    return {"rows": [text for first, text in texts if first], "folded": [text for first, text in texts if not first]}


def late(row: Mapping[str, Any]) -> float:
    """The longest wait first, and before it whoever saw nothing."""
    return -math.inf if row["seen"] is None else -float(row["seen"])


def shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"
