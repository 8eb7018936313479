"""The controller's copy of a launch's logs: artifacts/<cluster>/<run>/logs."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from muster.launch.plan import masked

from .artifacts import append_text, make_folder, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muster.launch.messages import LogPart
    from muster.verdict.redaction import Redaction, Stream

TAIL = 32 * 1024  # characters of each log kept for judging
EVENT = "@muster "  # a line of a rank that begins so carries one JSON object for the controller


class LogBook:
    """Writes each log part where it belongs, keeps its offset and its end, and hands on complete lines."""

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        on_line: Callable[[int, str, str], None],
        redaction: Redaction,
    ) -> None:
        """redaction: covers what the logs hold before it is kept or handed on.

        on_line(rank, stream, line) is called for every line of every rank; events are kept and not handed on.
        """
        self.folder = folder
        self.first_rank = {entry["node"]: entry["ranks"][0] for entry in plan["nodes"]}
        self.on_line = on_line
        self.redaction = redaction
        self.streams: dict[tuple[str, str], Stream] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.tails: dict[tuple[str, str], str] = {}
        self.partial: dict[tuple[str, str], str] = {}
        self.events: list[dict[str, Any]] = []
        # A launch that is attached to once more is fetched whole once more.
        shutil.rmtree(folder / "logs", ignore_errors=True)
        make_folder(folder)

    def keep_plan(self, plan: dict[str, Any]) -> None:
        write_json(self.folder / "plan.json", masked(plan, self.redaction))

    def offsets(self, node: str) -> dict[str, int]:
        return {key: offset for (name, key), offset in self.seen.items() if name == node}

    def take(self, node: str, logs: dict[str, LogPart]) -> None:
        for key, part in logs.items():
            seen = self.seen.get((node, key), 0)
            if part["offset"] <= seen:
                continue  # an answer that was overtaken by a later one
            # Two messages may be under way at once, a look and the stop behind it, both asking from the same offset.
            text = part["text"] if part["begin"] == seen else last_bytes(part["text"], part["offset"] - seen)
            self.seen[node, key] = part["offset"]
            stream = self.streams.setdefault((node, key), self.redaction.stream())
            before = stream.gap() if part["begin"] + part["gap"] > seen else ""
            self.add(node, key, before + stream.feed(text))

    def finish(self) -> None:
        """Nothing more comes of any log: what was held back, since it might have been the beginning of a secret."""
        for (node, key), stream in self.streams.items():
            self.add(node, key, stream.gap())

    def add(self, node: str, key: str, text: str) -> None:
        append_text(self.path(node, key), text)
        self.tails[node, key] = (self.tails.get((node, key), "") + text)[-TAIL:]
        if key != "agent":
            self.split_lines(node, key, text)

    def split_lines(self, node: str, key: str, text: str) -> None:
        local, stream = key.split("/")
        rank = self.first_rank[node] + int(local)
        lines = (self.partial.get((node, key), "") + text).split("\n")
        self.partial[node, key] = lines.pop()
        for line in lines:
            if stream == "stdout" and line.startswith(EVENT):
                self.take_event(rank, node, line)
            else:
                self.on_line(rank, stream, line)

    def take_event(self, rank: int, node: str, line: str) -> None:
        try:
            event = json.loads(line[len(EVENT) :])
        except ValueError:
            return  # a line cut short by the rank's death
        if isinstance(event, dict):
            event = {**event, "from_rank": rank, "from_node": node}
            self.events.append(event)
            self.on_line(rank, "event", json.dumps(event))

    def path(self, node: str, key: str) -> Path:
        if key == "agent":
            return self.folder / "logs" / node / "torchrun.log"
        local, stream = key.split("/")
        return self.folder / "logs" / node / f"rank{self.first_rank[node] + int(local)}.{stream}.log"

    def tail(self, node: str, key: str) -> str:
        return self.tails.get((node, key), "")

    def stderr_tails(self, node: str) -> dict[str, str]:
        return {
            key.split("/")[0]: text
            for (name, key), text in self.tails.items()
            if name == node and key.endswith("/stderr")
        }


def last_bytes(text: str, count: int) -> str:
    return text.encode()[-count:].decode("utf-8", "replace")
