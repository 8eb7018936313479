"""What drifted: each difference with since when, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifacts import Artifacts

MOST = 500  # rows
UNFOLDED = 30


def section(kept: Artifacts) -> dict[str, Any] | None:
    """None where it was not looked for."""
    if not kept.drift.get("nodes"):
        return None
    differences = [one for one in kept.drift.get("differences", []) if one["status"] != "pass"]
    rows = [
        {
            "mark": one["status"],
            "node": one["node"],
            "what": one["what"],
            "seen": one["observed"],
            "expected": one["expected"],
            "since": one["since"] or "unknown",
            "by": one["by"] or "unknown",
            "maybe": list(one.get("others", [])),
            "how": one["how"],
            "source": one["source"],
        }
        for one in differences[:MOST]
    ]
    return {
        "rows": rows[:UNFOLDED],
        "folded": rows[UNFOLDED:],
        "left_out": max(0, len(differences) - MOST),
        "repairs": list(kept.drift.get("repairs", [])),
        "down": [name for name, one in kept.drift["nodes"].items() if not one["reached"]],
    }
