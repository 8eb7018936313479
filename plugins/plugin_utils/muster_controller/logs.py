"""The controller's copy of a launch's logs: artifacts/<cluster>/<run>/logs."""

from __future__ import annotations

import fcntl
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.launch import launchers
from muster.launch.events import MARK, Events
from muster.launch.lines import Lines
from muster.launch.plan import masked

from .artifacts import make_folder, write_json
from .kept_log import KeptLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muster.launch.messages import LogPart
    from muster.verdict.redaction import Redaction, Stream

    from .keeping import Keeping

TAIL = 32 * 1024  # characters of each log kept for judging
ANY_SIZE = 2**62  # bytes of each log kept as a file


class LogBook:
    """Writes each log part where it belongs, keeps its offset and its end, and hands on complete lines.

    It takes what muster.launch.answers lets through: keys are those of ranks in the plan. Of each log it holds TAIL and
    one line in memory, whatever comes.
    """

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        on_line: Callable[[int, str, str], None],
        redaction: Redaction,
        keeping: Keeping,
        most: int = ANY_SIZE,
    ) -> None:
        """redaction: covers what the logs hold before it is kept or handed on. most: bytes of each log that are kept.

        on_line(rank, stream, line) is called for the lines of every rank, but for empty ones and events.
        """
        self.folder = folder
        self.first_rank = {entry["node"]: entry["ranks"][0] for entry in plan["nodes"]}
        self.launcher = plan.get("launcher", launchers.TORCHRUN.name)
        self.together = launchers.log_name(self.launcher) == launchers.OTHERS
        self.on_line = on_line
        self.redaction = redaction
        self.keeping = keeping
        self.most = most
        self.streams: dict[tuple[str, str], Stream] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.tails: dict[tuple[str, str], str] = {}
        self.lines: dict[tuple[str, str], Lines] = {}
        self.files: dict[tuple[str, str], KeptLog] = {}
        self.not_taken: dict[tuple[str, str], int] = {}
        self.events = Events()
        self.lock: int | None = None
        self.others = False  # another supervisor of this launch keeps its logs there
        keeping.surely(folder, self.begin)

    def begin(self) -> None:
        """Make the folder ours, unless another supervisor has it.

        A launch that is attached to is fetched whole again; of a log that its node has no more, the copy stays.

        Raises OSError.
        """
        make_folder(self.folder)
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.others = True
            self.keeping.say(
                f"Another supervisor of this launch keeps its logs in {self.folder}; this one only watches"
            )

    def keep_plan(self, plan: dict[str, Any]) -> str:
        """Return why it is lost; "" where it is kept."""
        path = self.folder / "plan.json"
        return self.keeping.surely(path, partial(write_json, path, masked(plan, self.redaction)))

    def offsets(self, node: str) -> dict[str, int]:
        return {key: offset for (name, key), offset in self.seen.items() if name == node}

    def take(self, node: str, logs: dict[str, LogPart]) -> None:
        for key, part in logs.items():
            seen = self.seen.get((node, key), 0)
            if part["offset"] <= seen:
                continue  # an answer that was overtaken by a later one
            # Two messages may be under way at once, a look and the stop behind it, both asking from the same offset.
            start = part["begin"] + part["gap"]
            text = part["text"] if start >= seen else last_bytes(part["text"], part["offset"] - seen)
            self.seen[node, key] = part["offset"]
            gap = max(0, start - seen)
            stream = self.streams.setdefault((node, key), self.redaction.stream())
            if gap:
                self.add(node, key, stream.gap())
            self.add(node, key, stream.feed(text), gap)

    def finish(self) -> None:
        """Nothing more comes of any log: what was held back, since it might have been the beginning of a secret."""
        for (node, key), stream in self.streams.items():
            self.add(node, key, stream.gap())

    def add(self, node: str, key: str, text: str, gap: int = 0) -> None:
        self.tails[node, key] = (self.tails.get((node, key), "") + text)[-TAIL:]
        self.keep(node, key, text, gap)
        if key != "agent" or self.together:
            self.hand_on(node, key, text)

    def keep(self, node: str, key: str, text: str, gap: int) -> None:
        if self.others:
            return
        data = text.encode("utf-8", "replace")
        file = self.files.setdefault((node, key), KeptLog(self.path(node, key), self.most))
        gap += self.not_taken.pop((node, key), 0)
        if not self.keeping.keep(file.path, partial(file.add, data, gap), len(data)):
            self.not_taken[node, key] = gap + len(data)

    def hand_on(self, node: str, key: str, text: str) -> None:
        # What a command writes by itself may be its ranks': nobody knows which one's, so it counts as the first's.
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

    def path(self, node: str, key: str) -> Path:
        if key == "agent":
            return self.folder / "logs" / node / f"{launchers.log_name(self.launcher)}.log"
        rank, stream = self.of(node, key)
        return self.folder / "logs" / node / f"rank{rank}.{stream}.log"

    def close(self) -> None:
        """Have all of it in the files, and leave the folder to others."""
        for (node, key), file in self.files.items():
            if gap := self.not_taken.pop((node, key), 0):
                self.keeping.keep(file.path, partial(file.add, b"", gap))
            self.keeping.keep(file.path, file.finish)
        self.keeping.finish()
        if self.events.left_out:
            self.keeping.say(f"{self.events.left_out} events of ranks were left out: there were too many")
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

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
