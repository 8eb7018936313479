"""Events: lines of a rank's standard output that carry one JSON object each for the controller."""

from __future__ import annotations

import json
from typing import Any

from ..verdict.printable import printable

MARK = "@muster "
MOST = 32 * 1024 * 1024  # characters of all events of a launch together
MOST_OF_RANK = 5000  # events, so that a rank which floods keeps no other's out
MOST_DEPTH = 20


class Events:
    """kept: what was understood, with from_rank and from_node. left_out: how many more there were."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0
        self.size = 0
        self.of_rank: dict[int, int] = {}

    def take(self, line: str, rank: int, node: str) -> dict[str, Any] | None:
        """The event of this line, kept where there is room; None where the line has none."""
        try:
            event = plain(json.loads(line[len(MARK) :]))
        except (ValueError, RecursionError):
            return None  # a line cut short by the rank's death
        if not isinstance(event, dict):
            return None
        event = {**event, "from_rank": rank, "from_node": node}
        if self.of_rank.get(rank, 0) >= MOST_OF_RANK or self.size + len(line) > MOST:
            self.left_out += 1
        else:
            self.kept.append(event)
            self.size += len(line)
            self.of_rank[rank] = self.of_rank.get(rank, 0) + 1
        return event


def plain(value: Any, depth: int = 0) -> Any:
    """The value with printable text alone. Raises ValueError where it is nested too deeply."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {printable(name): plain(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part, depth + 1) for part in value]
    return printable(value) if isinstance(value, str) else value
