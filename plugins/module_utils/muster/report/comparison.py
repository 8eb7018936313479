"""The same training in one process, on one node and on all nodes: the table, with a bar for each speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..acceptance import comparison

if TYPE_CHECKING:
    from collections.abc import Mapping


def table(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Rows as text, by the headings; None where nothing was compared."""
    rows = kept.get("rows", [])
    if not rows:
        return None
    most = max((row["samples_per_second"] or 0.0 for row in rows), default=0.0)
    return {
        "headings": list(comparison.HEADINGS),
        "sentence": comparison.sentence(kept),
        "wrong": bool(kept["wrong"]),
        "rows": [
            {
                "cells": comparison.cells(row),
                "part": round(100 * (row["samples_per_second"] or 0.0) / most, 1) if most else 0,
                "why": row["why"],
            }
            for row in rows
        ],
        "skipped": [f"{entry['name']}: {entry['why']}" for entry in kept["skipped"]],
    }
