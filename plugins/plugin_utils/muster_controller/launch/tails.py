"""The part of the logs that a supervisor holds in memory: the end of each log, and complete lines for consumers.

This module writes no files; logs.py does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muster.launch import launchers
from muster.launch.events import MARK, Events
from muster.launch.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from muster.launch.messages import LogPart
    from muster.launch.planned import LaunchPlan
    from muster.verdict.redaction import RedactedStream, Redaction

TAIL = 32 * 1024  # characters of each log kept for the evaluation


class Tails:
    """Keeps the offset and the end of each log, and passes complete lines to on_line.

    muster.launch.answers has validated the responses, so that all keys are ranks of the plan. Holds at most TAIL and
    one line of each log in memory.
    """

    def __init__(self, plan: LaunchPlan, on_line: Callable[[int, str, str], None], redaction: Redaction) -> None:
        """redaction: masks secrets in the logs before they are kept or passed on.

        on_line(rank, stream, line) is called for the lines of every rank, except empty lines and events.
        """
        self.first_rank = {entry.node: entry.ranks[0] for entry in plan.nodes}
        self.launcher = plan.launcher
        self.together = launchers.log_name(self.launcher) == launchers.OTHERS
        self.on_line = on_line
        self.redaction = redaction
        self.streams: dict[tuple[str, str], RedactedStream] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.tails: dict[tuple[str, str], str] = {}
        self.lines: dict[tuple[str, str], Lines] = {}
        self.events = Events()

    def keep_plan(self, _plan: LaunchPlan) -> str:
        """Return why the plan could not be stored, or "". This class stores nothing and always returns ""."""
        return ""

    def keep(self, node: str, key: str, text: str, gap: int) -> None:
        """Keep a part of a log that follows `gap` missing bytes."""

    def keep_evidence(self, moment: str, node: str, found: Any) -> None:
        """Keep the evidence of a node."""

    def kept_evidence(self, _nodes: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
        """Return the moment, node and content of the evidence that an earlier supervisor of this launch stored."""
        return iter(())

    def secret(self, new: bytes) -> bytes:
        """Return the shared secret from which the keys of launches are derived, or the new secret if none is stored."""
        return new

    def offsets(self, node: str) -> dict[str, int]:
        return {key: offset for (name, key), offset in self.seen.items() if name == node}

    def take(self, node: str, logs: dict[str, LogPart]) -> None:
        for key, part in logs.items():
            seen = self.seen.get((node, key), 0)
            if part["offset"] <= seen:
                continue  # a response older than one already processed
            # A look and the following stop may be in progress at the same time, with the same offset.
            start = part["begin"] + part["gap"]
            text = part["text"] if start >= seen else last_bytes(part["text"], part["offset"] - seen)
            self.seen[node, key] = part["offset"]
            gap = max(0, start - seen)
            stream = self.streams.setdefault((node, key), self.redaction.stream())
            if gap:
                self.add(node, key, stream.gap())
            self.add(node, key, stream.feed(text), gap)

    def finish(self) -> None:
        """Pass on text that was held back because it could have been the beginning of a secret. Called at the end of
        the logs."""
        for (node, key), stream in self.streams.items():
            self.add(node, key, stream.gap())

    def add(self, node: str, key: str, text: str, gap: int = 0) -> None:
        self.tails[node, key] = (self.tails.get((node, key), "") + text)[-TAIL:]
        self.keep(node, key, text, gap)
        if key != "agent" or self.together:
            self.hand_on(node, key, text)

    def hand_on(self, node: str, key: str, text: str) -> None:
        # The output of a command may come from any of its ranks, so it is attributed to the first one.
        rank, stream = (self.first_rank[node], "stdout") if key == "agent" else self.of(node, key)
        for line in self.lines.setdefault((node, key), Lines()).take(text):
            if stream != "stdout" or not line.startswith(MARK):
                self.on_line(rank, stream, line)
            elif event := self.events.take(line, rank, node):
                self.on_line(rank, "event", json.dumps(event))

    def of(self, node: str, key: str) -> tuple[int, str]:
        return self.rank(node, key), key.partition("/")[2]

    def rank(self, node: str, key: str) -> int:
        return int(self.first_rank[node] + int(key.partition("/")[0]))

    def tail(self, node: str, key: str) -> str:
        return self.tails.get((node, key), "")

    def stderr_tails(self, node: str) -> dict[str, str]:
        return {
            key.split("/")[0]: text
            for (name, key), text in self.tails.items()
            if name == node and key.endswith("/stderr")
        }


def last_bytes(text: str, count: int) -> str:
    return text.encode("utf-8", "replace")[-count:].decode("utf-8", "replace")
