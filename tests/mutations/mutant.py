"""A mutant: one change of one product file, defined by byte offsets."""

from __future__ import annotations

import difflib
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Change:
    """Replace the bytes from start to end (`old`) with `new`. kind: the kind of mutation."""

    kind: str
    start: int
    end: int
    old: str
    new: str

    def applied(self, data: bytes) -> bytes:
        if data[self.start : self.end] != self.old.encode():
            raise ValueError(f"the text at byte {self.start} is not {self.old!r}")
        return data[: self.start] + self.new.encode() + data[self.end :]


@dataclass(frozen=True)
class Candidate:
    """A possible change. is_one: function that checks whether the mutated source is valid and differs; this check is
    slow."""

    change: Change
    is_one: Callable[[], bool]


@dataclass(frozen=True)
class Mutant:
    """A mutant of a file. file: path relative to the checkout. room: part of the product from which the mutant was
    drawn."""

    file: str
    room: str
    line: int
    change: Change
    diff: str

    @property
    def key(self) -> str:
        """Return a key that does not depend on the position of the change in its file."""
        lines = self.diff.splitlines()
        changed = "\n".join(line for line in lines if not line.startswith("@@"))
        return hashlib.sha256(f"{self.file}\n{changed}".encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def apply(self, checkout: Path) -> None:
        write(checkout / self.file, self.change)

    def revert(self, checkout: Path) -> None:
        change = self.change
        end = change.start + len(change.new.encode())
        write(checkout / self.file, Change(change.kind, change.start, end, change.new, change.old))


def write(path: Path, change: Change) -> None:
    """Write the changed source with a later mtime, because Python caches byte code by mtime (seconds) and size."""
    later = int(path.stat().st_mtime) + 1
    path.write_bytes(change.applied(path.read_bytes()))
    os.utime(path, (later, later))


def mutant(file: str, room: str, data: bytes, change: Change) -> Mutant:
    """Return a mutant with its line number and a diff with little context."""
    before, after = data.decode().splitlines(), change.applied(data).decode().splitlines()
    diff = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    first = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(after))
    return Mutant(file, room, first + 1, change, "\n".join(diff))
