"""The attempts of a launch that went on after a failure, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDED = {True: "pass", False: "fail"}


def table(kept: Mapping[str, Any], verdict: Mapping[str, Any], this: str) -> list[dict[str, Any]] | None:
    """Rows, the oldest first; None where there was one attempt, or none. kept: attempts.json. this: the run's id."""
    found = [one for one in kept.get("attempts", []) if isinstance(one, dict)]
    if len(found) < 2:
        return None
    well = verdict.get("status") in ("healthy", "degraded")
    return [
        {
            "number": one.get("number", ""),
            "id": str(one.get("launch_id", "")),
            "this": one.get("launch_id") == this,
            "nodes": few([str(name) for name in one.get("nodes", [])]),
            "from": str(one.get("checkpoint") or ""),
            "mark": ENDED[well and one is found[-1]],
            "how": str(one.get("summary", "")),
        }
        for one in found
    ]
