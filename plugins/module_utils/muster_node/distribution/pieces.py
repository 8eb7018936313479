"""The content of a distribution: all requested files, concatenated and cut into pieces of equal size.

A node forwards each verified piece while it receives further pieces. The node's processes share the list of present
pieces in memory. The bytes are in existing files or in an unnamed file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ..tools import files
from . import store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .manifest import ManifestFile

LEAST_PIECE, MOST_PIECE = 1 << 18, 1 << 23  # bytes
MOST_PIECES = 4096  # unless the content exceeds 32 GB
AS_THEY_ARE = 1 << 20  # bytes; larger files are read in place, smaller ones are copied into one file
MOST_OPEN = 100
TAKING, ENDED = 0, 1
COUNT = struct.Struct("!Q")
FIRST = 24  # offset of the pieces in shared memory, after the state, `above` and `turn`


class PieceLayout:
    """Calculates the positions of files and pieces in the content."""

    def __init__(self, listed: Iterable[ManifestFile], wanted: Iterable[str]) -> None:
        left = set(wanted)
        self.files: list[ManifestFile] = []
        self.begins: list[int] = []
        self.size = 0
        for file in listed:
            if file.sha256 in left:
                left.remove(file.sha256)
                self.files.append(file)
                self.begins.append(self.size)
                self.size += file.size
        self.piece = LEAST_PIECE
        while self.piece < MOST_PIECE and self.size > self.piece * MOST_PIECES:
            self.piece *= 2
        self.count = -(-self.size // self.piece)

    def place(self, index: int) -> tuple[int, int]:
        """Return the offset of a piece, and its size."""
        begin = index * self.piece
        return begin, min(self.piece, self.size - begin)

    def of_file(self, at: int) -> range:
        """Return the pieces that contain a part of a file."""
        begin, size = self.begins[at], self.files[at].size
        return range(begin // self.piece, -(-(begin + size) // self.piece) if size else begin // self.piece)


class PieceSet:
    """The pieces that this node has. digests: sha256 of each piece. scratch: the unnamed file."""

    def __init__(self, layout: PieceLayout, digests: Sequence[str], scratch: int) -> None:
        self.layout = layout
        self.digests = digests
        self.scratch = scratch
        self.lacking: list[int] = []  # missing files, by index in the layout
        self.open: dict[int, int] = {}
        self.shared = mmap.mmap(-1, FIRST + layout.count)

    def has(self, index: int) -> bool:
        return self.shared[FIRST + index] == 1

    @property
    def have(self) -> int:
        return self.shared[FIRST:].count(1)

    @property
    def above(self) -> int:
        """Return the number of pieces that this node's source has."""
        return int(COUNT.unpack(self.shared[8:16])[0])

    @above.setter
    def above(self, count: int) -> None:
        self.shared[8:16] = COUNT.pack(count)

    @property
    def turn(self) -> int:
        """Return how often this node has changed its source."""
        return int(COUNT.unpack(self.shared[16:FIRST])[0])

    @turn.setter
    def turn(self, count: int) -> None:
        self.shared[16:FIRST] = COUNT.pack(count)

    @property
    def state(self) -> int:
        return self.shared[0]

    @state.setter
    def state(self, state: int) -> None:
        self.shared[0] = state

    def missing(self) -> list[int]:
        return [index for index in range(self.layout.count) if not self.has(index)]

    def put(self, index: int, content: bytes | memoryview) -> None:
        """Store a verified piece."""
        at = self.layout.place(index)[0]
        rest = memoryview(content)
        while rest:
            done = os.pwrite(self.scratch, rest, at)
            rest, at = rest[done:], at + done
        self.shared[FIRST + index] = 1

    def read(self, index: int) -> bytes:
        """Return a present piece. Raises OSError if a file was truncated."""
        at, left = self.layout.place(index)
        found = bytearray()
        file = bisect_right(self.layout.begins, at) - 1
        while left:
            begin, size = self.layout.begins[file], self.layout.files[file].size
            part = min(left, begin + size - at)
            if part:
                handle = self.open.get(file)
                content = os.pread(self.scratch, part, at) if handle is None else os.pread(handle, part, at - begin)
                if not content:
                    raise files.UnsafePathError(0, "was truncated")
                found += content
                at, left = at + len(content), left - len(content)
            if at == begin + size:
                file += 1
        return bytes(found)


@contextmanager
def gathered(
    there: store.Shelf, layout: PieceLayout, digests: Sequence[str], *, compared: bool = False
) -> Iterator[PieceSet]:
    """Yield the content with the present files after verifying their sha256. compared: skip large files, which were
    verified before; receivers verify each piece."""
    with ExitStack() as stack:
        whole = PieceSet(layout, digests, stack.enter_context(store.scratch(there)))
        for at in range(len(layout.files)):
            try:
                _gather(there, whole, at, stack, compared=compared)
            except OSError:
                whole.lacking.append(at)
        absent = {index for at in whole.lacking for index in layout.of_file(at)}
        for index in range(layout.count):
            whole.shared[FIRST + index] = index not in absent
        whole.above = whole.have
        yield whole


def digests_of(whole: PieceSet) -> list[str]:
    return [hashlib.sha256(whole.read(index)).hexdigest() for index in range(whole.layout.count)]


def _gather(there: store.Shelf, whole: PieceSet, at: int, stack: ExitStack, *, compared: bool) -> None:
    file, begin = whole.layout.files[at], whole.layout.begins[at]
    if file.size >= AS_THEY_ARE and len(whole.open) < MOST_OPEN:
        with ExitStack() as opening:
            handle = opening.enter_context(store.open_content(there, file))
            if not compared or os.fstat(handle).st_size != file.size:
                store.compare(file, handle, lambda _chunk: None)
            stack.push(opening.pop_all())
        whole.open[at] = handle
        return
    os.lseek(whole.scratch, begin, os.SEEK_SET)
    store.copy(there, file, lambda chunk: store.write_all(whole.scratch, chunk))
