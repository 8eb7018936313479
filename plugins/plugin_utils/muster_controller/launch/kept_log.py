"""The controller's copy of one log: its beginning and its end, and a line where something is missing in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.verdict.words import gigabytes
from muster_controller.artifacts.private_files import append

if TYPE_CHECKING:
    from pathlib import Path


class KeptLog:
    """At most `most` bytes: one half for the beginning. The end is written beside it into two files in turn, so that
    it costs no memory, and joined to the beginning by `finish`.

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
        self.missing = 0  # bytes that were to come next, and are nowhere
        self.dropped = 0  # bytes between the beginning and the end

    def add(self, data: bytes, gap: int = 0) -> None:
        """Append, behind `gap` bytes that are missing. Raises OSError; what is not written is missing from then on.

        The first part takes the place of what an earlier supervisor kept.
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
        """Join the end to the beginning. Raises OSError, and leaves what is beside it where it is."""
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
    return f"\n... {gigabytes(count)} left out here ...\n".encode()
