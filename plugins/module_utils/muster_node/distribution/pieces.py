"""What goes from node to node: all that is wanted, one content behind the other, cut into pieces of one size.

A node gives a piece on as soon as it has it and has compared it, while others still come. What it has of the whole is
in memory that its processes share; the bytes are in the files that were there before, or in one without a name.
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
MOST_PIECES = 4096  # of one whole, unless it has more than 32 GB
AS_THEY_ARE = 1 << 20  # bytes of a file that is given from where it lies; smaller ones are copied together
MOST_OPEN = 100
TAKING, ENDED = 0, 1
COUNT = struct.Struct("!Q")
FIRST = 24  # where in the shared memory the pieces begin; before them: the state, `above` and `turn`


class PieceLayout:
    """Where in the whole each content lies, and each piece."""

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
        """Return where a piece begins, and its size."""
        begin = index * self.piece
        return begin, min(self.piece, self.size - begin)

    def of_file(self, at: int) -> range:
        """Return the pieces in which a file has any part."""
        begin, size = self.begins[at], self.files[at].size
        return range(begin // self.piece, -(-(begin + size) // self.piece) if size else begin // self.piece)


class PieceSet:
    """What this node has of it. digests: of each piece. scratch: the file without a name."""

    def __init__(self, layout: PieceLayout, digests: Sequence[str], scratch: int) -> None:
        self.layout = layout
        self.digests = digests
        self.scratch = scratch
        self.lacking: list[int] = []  # files that are not here, by their place in the layout
        self.open: dict[int, int] = {}
        self.shared = mmap.mmap(-1, FIRST + layout.count)

    def has(self, index: int) -> bool:
        return self.shared[FIRST + index] == 1

    @property
    def have(self) -> int:
        return self.shared[FIRST:].count(1)

    @property
    def above(self) -> int:
        """How far the one is from which this node takes."""
        return int(COUNT.unpack(self.shared[8:16])[0])

    @above.setter
    def above(self, count: int) -> None:
        self.shared[8:16] = COUNT.pack(count)

    @property
    def turn(self) -> int:
        """How often this node has begun to take from another one."""
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
        """Keep a piece that was compared."""
        at = self.layout.place(index)[0]
        rest = memoryview(content)
        while rest:
            done = os.pwrite(self.scratch, rest, at)
            rest, at = rest[done:], at + done
        self.shared[FIRST + index] = 1

    def read(self, index: int) -> bytes:
        """Return a piece that is here. Raises OSError where a file has become shorter."""
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
                    raise files.UnsafePathError(0, "has become shorter")
                found += content
                at, left = at + len(content), left - len(content)
            if at == begin + size:
                file += 1
        return bytes(found)


@contextmanager
def gathered(
    there: store.Shelf, layout: PieceLayout, digests: Sequence[str], *, compared: bool = False
) -> Iterator[PieceSet]:
    """Yield the whole with what of it is here, each file compared with its sha256; compared: large ones were already,
    and whoever takes compares each piece."""
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
