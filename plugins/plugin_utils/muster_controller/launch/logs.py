"""The controller's copy of a launch's logs: artifacts/<cluster>/<run>/logs."""

from __future__ import annotations

import fcntl
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.launch import launchers
from muster.launch.plan import masked
from muster.verdict.words import gigabytes
from muster_controller.artifacts.private_files import append, make_folder
from muster_controller.artifacts.runs import write_json

from . import kept_evidence
from .tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from muster.launch.planned import LaunchPlan
    from muster.verdict.redaction import Redaction
    from muster_controller.artifacts.keeping import Keeping


# ---------------------------------------------------------------- kept log

# The controller's copy of one log: its beginning and its end, with a line where data is missing in between.


class KeptLog:
    """A log file of at most `most` bytes. One half is for the beginning of the log. The end of the log is written to
    two files in turn, so that it needs no memory. `finish` appends the end to the beginning.

    Used by one thread.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.most_head = most // 2
        self.most_turn = most // 4
        self.turns = [path.with_suffix(f".end{number}") for number in (1, 2)]
        self.sizes = [0, 0]
        self.turn = 0
        self.head = 0
        self.begun = False
        self.missing = 0  # bytes that were lost before the next data
        self.dropped = 0  # bytes between the beginning and the end

    def add(self, data: bytes, gap: int = 0) -> None:
        """Append data after `gap` missing bytes. Raises OSError. Data that could not be written counts as missing.

        The first part replaces the file of an earlier supervisor.
        """
        if not self.begun:
            for path in (self.path, *self.turns):
                path.unlink(missing_ok=True)
            self.begun = True
        missing = self.missing + gap
        self.missing = missing + len(data)
        if missing:
            self.write(gap_line(missing))
            self.missing = len(data)
        self.write(data)

    def write(self, data: bytes) -> None:
        room = self.most_head - self.head
        if room > 0:
            self.head += len(data[:room])
            self.append(self.path, data[:room])
            data = data[room:]
        if data:
            self.write_end(data)

    def write_end(self, data: bytes) -> None:
        if self.sizes[self.turn] + len(data) > self.most_turn and self.sizes[self.turn]:
            self.turn = 1 - self.turn
            self.turns[self.turn].unlink(missing_ok=True)
            self.dropped += self.sizes[self.turn]
            self.sizes[self.turn] = 0
        kept = data[-self.most_turn :]
        self.dropped += len(data) - len(kept)
        self.missing -= len(data) - len(kept)
        self.sizes[self.turn] += len(kept)
        self.append(self.turns[self.turn], kept)

    def append(self, path: Path, data: bytes) -> None:
        while data:
            written = append(path, data)
            self.missing -= written
            data = data[written:]

    def finish(self) -> None:
        """Append the end to the beginning. Raises OSError, in which case the files with the end are kept."""
        if self.missing:
            self.add(b"")
        if self.dropped:
            self.append(self.path, gap_line(self.dropped))
        for path in (self.turns[1 - self.turn], self.turns[self.turn]):
            if path.exists():
                self.append(self.path, path.read_bytes())
                path.unlink()
        self.dropped, self.missing, self.sizes = 0, 0, [0, 0]


def gap_line(count: int) -> bytes:
    return f"\n... {gigabytes(count)} missing here ...\n".encode()


ANY_SIZE = 2**62  # bytes of each log kept as a file


class LogBook(Tails):
    """Writes each received part of a log to the log's file."""

    def __init__(
        self,
        folder: Path,
        plan: LaunchPlan,
        on_line: Callable[[int, str, str], None],
        redaction: Redaction,
        keeping: Keeping,
        most: int = ANY_SIZE,
    ) -> None:
        """most: the maximum size of each log in bytes."""
        super().__init__(plan, on_line, redaction)
        self.folder = folder
        self.keeping = keeping
        self.most = most
        self.files: dict[tuple[str, str], KeptLog] = {}
        self.not_taken: dict[tuple[str, str], int] = {}
        self.lock: int | None = None
        self.others = False  # another supervisor of this launch writes the logs in this folder
        keeping.surely(folder, self.begin)

    def begin(self) -> None:
        """Lock the folder, unless another supervisor has locked it.

        When attaching to a launch, all logs are fetched again from the beginning. If a node no longer has a log, the
        controller's copy is kept. Raises OSError.
        """
        make_folder(self.folder)
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.others = True
            self.keeping.say(
                f"Another supervisor of this launch writes the logs in {self.folder}; this one only shows output"
            )

    def keep_plan(self, plan: LaunchPlan) -> str:
        path = self.folder / "plan.json"
        return self.keeping.surely(path, partial(write_json, path, masked(plan, self.redaction).as_json()))

    def keep(self, node: str, key: str, text: str, gap: int) -> None:
        if self.others:
            return
        data = text.encode("utf-8", "replace")
        file = self.files.setdefault((node, key), KeptLog(self.path(node, key), self.most))
        gap += self.not_taken.pop((node, key), 0)
        if not self.keeping.keep(file.path, partial(file.add, data, gap), len(data)):
            self.not_taken[node, key] = gap + len(data)

    def keep_evidence(self, moment: str, node: str, found: Any) -> None:
        if not self.others:
            path = kept_evidence.path_of(self.folder, moment, node)
            self.keeping.keep(path, partial(write_json, path, found))

    def kept_evidence(self, nodes: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
        return kept_evidence.kept(self.folder, nodes)

    def secret(self, new: bytes) -> bytes:
        shared: list[bytes] = []
        path = self.folder.parent / kept_evidence.KEY_FILE
        self.keeping.surely(path, lambda: shared.append(kept_evidence.shared_secret(self.folder, new)))
        return shared[0] if shared else new

    def path(self, node: str, key: str) -> Path:
        if key == "agent":
            return self.folder / "logs" / node / f"{launchers.log_name(self.launcher)}.log"
        rank, stream = self.of(node, key)
        return self.folder / "logs" / node / f"rank{rank}.{stream}.log"

    def close(self) -> None:
        """Write all remaining data to the files, and unlock the folder."""
        for (node, key), file in self.files.items():
            if gap := self.not_taken.pop((node, key), 0):
                self.keeping.keep(file.path, partial(file.add, b"", gap))
            self.keeping.keep(file.path, file.finish)
        self.keeping.finish()
        if self.events.left_out:
            self.keeping.say(f"{self.events.left_out} events of ranks were discarded (limit reached)")
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
