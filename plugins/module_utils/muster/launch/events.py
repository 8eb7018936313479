"""Events for the controller: lines on a rank's standard output that each contain one JSON object."""

from __future__ import annotations

import json
from typing import Any

from ..verdict.printable import printable

MARK = "@muster "
MOST = 32 * 1024 * 1024  # characters of all events of a launch together
MOST_OF_RANK = 5000  # events, so that a flood from one rank does not displace those of others
MOST_DEPTH = 20


class Events:
    """The events of a launch.

    kept: the valid events, with from_rank and from_node. left_out: number of dropped events.
    """

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0
        self.size = 0
        self.of_rank: dict[int, int] = {}

    def take(self, line: str, rank: int, node: str) -> dict[str, Any] | None:
        """Return the event in a line, and keep it if the limit is not reached.

        Returns None if the line contains no event.
        """
        try:
            event = plain(json.loads(line[len(MARK) :]))
        except (ValueError, RecursionError):
            return None  # the rank ended within the line
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
    """Return the value with only printable characters in its text.

    Raises ValueError if the value is nested too deeply.
    """
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {printable(name): plain(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part, depth + 1) for part in value]
    return printable(value) if isinstance(value, str) else value
