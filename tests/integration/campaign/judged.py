"""Rate the diagnosis of an injected fault. Wrong is the worst rating."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from row import Row

RIGHT, HONEST, MISSED, WRONG = "right", "unknown, correctly", "unknown", "wrong"


def place(said: dict[str, Any]) -> str:
    """Return the place of a cause: the name of a node, the names of a pair of nodes, or "no node"."""
    return " - ".join(sorted(part for part in (said["node"], said["peer"]) if part)) or "no node"


def line(said: dict[str, Any]) -> str:
    return f"{said['id']} @ {place(said)}"


def judge(row: Row, diagnosis: dict[str, Any] | None) -> tuple[str, str]:
    """Return the rating of a diagnosis and the causes that the diagnosis reports."""
    if diagnosis is None:
        return MISSED, "no diagnosis"
    causes = [line(one) for one in diagnosis["causes"]]
    if diagnosis["word"] == "unknown":
        candidates = [line(one) for one in diagnosis["candidates"]]
        honest = row.blind and (not row.right or bool(set(row.right) & set(candidates)))
        return (HONEST if honest else MISSED), "unknown: " + few(candidates)
    wrong = [one for one in causes if one not in row.right]
    return (WRONG if wrong or not causes else RIGHT), f"{diagnosis['word']}: {few(causes)}"


def few(lines: Sequence[str]) -> str:
    return ", ".join(lines[:4]) or "nothing"
