"""The trial of shared folders: how fast nodes write and read there, all at once, and when each sees others' files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def tables(kept: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """One for each folder; None where none was tried."""
    found = [
        {
            "path": one["path"],
            "megabytes": one["megabytes"],
            "rows": [{**row, **{name: shown(row[name]) for name in ("write", "read", "seen")}} for row in one["nodes"]],
            "together": {
                name: f"{sum(row[name] or 0.0 for row in one['nodes']):.0f}" if len(one["nodes"]) > 1 else ""
                for name in ("write", "read")
            },
        }
        for one in kept.get("folders", [])
    ]
    return found or None


def shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"
