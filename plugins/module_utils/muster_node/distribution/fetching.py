"""Receive pieces from other nodes. A piece is trusted only after its sha256 matches the announced digest.

The process runs as nobody if its parent is root. Each verified piece is stored at once, and other processes forward it.
If a source ends, does not respond, is slow or sends wrong data, the receiver continues with the next source.

A node skips a slow source. With each piece come three counts: the pieces of the source, the pieces of the source's own
source, and how often the source has changed its own source. The node skips a source that has fallen far behind its own
source since that change.
"""

from __future__ import annotations

import hashlib
import socket
import time
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from . import greeting
from .serving import ENOUGH, HEAD, NOTHING, NUMBER, PATIENCE, nobody_listens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .pieces import PieceSet

Json = dict[str, Any]

ONE_TRY = 3.0  # seconds for a connection
BETWEEN = 0.1
SILENT = 5.0  # seconds without a message: a waiting source sends one each second
TRIES = 2  # of one source
ASKED_AT_ONCE = 8  # pieces
LEAST = 24  # pieces: more than are requested in advance
SHARE = 16  # fraction of the content by which a node may fall behind


class WrongError(Exception):
    """Raised if received data does not match the announcement."""


class PieceSource(NamedTuple):
    address: str
    port: int


class PieceReceiver:
    """Receives the missing pieces. request: {givers: [[address, port], ...] in order of preference; address: address of
    this node; token; calls_for}. until: deadline."""

    def __init__(self, request: Json, whole: PieceSet, until: float) -> None:
        self.sources = [PieceSource(*each) for each in request["givers"]]
        self.address: str = request["address"]
        self.token: str = request["token"]
        self.calls_for: float = request["calls_for"]  # seconds for a source to begin to listen
        self.whole = whole
        self.until = until
        self.pace = TransferPace(whole.layout.count)
        self.tries = dict.fromkeys(self.sources, 0)
        self.came: dict[str, int] = {}
        self.why = "no source is available"
        self.peer: socket.socket | None = None
        self.at = PieceSource("", 0)
        self.asked = ""  # address of the last source that was connected to

    def run(self) -> None:
        """Receive until the content is complete or no source is left; `why` is the last error."""
        if self.sources and not self.whole.missing():  # the source waits for it anyway
            with suppress(OSError):
                self.change(self.sources[0], self.called(self.sources[0], self.calls_for))
        while self.whole.missing():
            left = [each for each in self.sources if self.tries[each] < TRIES]
            if not left or nobody_listens():
                return
            least = min(left, key=lambda each: self.tries[each])
            try:
                patience = ONE_TRY if self.tries[least] else self.calls_for
                self.tries[least] += 1
                self.change(least, self.called(least, patience))
                while self.peer is not None and self.take(self.peer):
                    pass
            except WrongError as problem:
                self.why = str(problem)
                self.tries[self.at] = TRIES
                self.change(self.at, None)
            except OSError as problem:
                self.why = f"{self.asked}: {problem.strerror or problem}"
                self.change(self.at, None)

    def change(self, source: PieceSource, peer: socket.socket | None) -> None:
        """Switch to this source, and notify the previous source that this node needs no more pieces."""
        before, self.at, self.peer = self.peer, source, peer
        if before is not None:
            with before, suppress(OSError):
                before.sendall(NUMBER.pack(ENOUGH))

    def sign(self) -> None:
        """Notify the source that this node is alive and might forward pieces to other nodes."""
        if self.peer is not None:
            try:
                self.peer.sendall(NUMBER.pack(NOTHING))
            except OSError:
                self.change(self.at, None)

    # ------------------------------------------------------------ one source

    def called(self, source: PieceSource, patience: float) -> socket.socket:
        """Connect to a source. Retry until the source listens, because all nodes start at the same time."""
        until = min(self.until, time.monotonic() + patience)
        self.asked = source.address
        while True:
            # Not create_connection: it resolves addresses like names, from files that the user nobody may not read.
            peer = socket.socket(socket.AF_INET6 if ":" in source.address else socket.AF_INET)
            try:
                peer.settimeout(ONE_TRY)
                peer.bind((self.address, 0))
                peer.connect(source)
                break
            except OSError:
                peer.close()
                if time.monotonic() > until:
                    raise
            time.sleep(BETWEEN)
        try:
            peer.settimeout(SILENT)
            greeting.introduce(peer, self.token)
        except OSError:
            peer.close()
            raise
        return peer

    def take(self, peer: socket.socket) -> bool:
        """Receive the missing pieces from the current source in order, and request some pieces ahead. Return whether to
        continue with another source."""
        whole, count = self.whole, self.whole.layout.count
        queue = iter(whole.missing())
        asked: list[int] = []
        buffer = memoryview(bytearray(whole.layout.piece))
        own = whole.have
        self.pace.begin()
        whole.turn += 1
        ask(peer, queue, asked, ASKED_AT_ONCE)
        while asked:
            if time.monotonic() > self.until or nobody_listens():
                raise TimeoutError(0, "the transfer timed out")
            index, have, above, turn = HEAD.unpack(greeting.received(peer, HEAD.size))
            whole.above = min(have, count)
            if index != NOTHING:
                if index != asked[0]:
                    raise WrongError(f"{self.at.address} sent a piece that was not requested")
                content = buffer[: whole.layout.place(index)[1]]
                receive(peer, content)
                if hashlib.sha256(content).hexdigest() != whole.digests[index]:
                    raise WrongError(f"a piece from {self.at.address} does not match its sha256")
                whole.put(index, content)
                own += 1
                self.came[self.at.address] = self.came.get(self.at.address, 0) + 1
                del asked[0]
                ask(peer, queue, asked, 1)
            if self.pace.too_slow(own, have, above, turn) and self.go_past():
                return True
        return False

    def go_past(self) -> bool:
        """Try to receive from a node that precedes the slow source in the chain, so that the slow source does not delay
        all nodes after it."""
        before = self.sources[self.sources.index(self.at) + 1 :]
        for source in before:
            if self.tries[source] < TRIES:
                self.tries[source] += 1
                with suppress(OSError):
                    self.change(source, self.called(source, 0.0))
                    return True
        return False


def ask(peer: socket.socket, queue: Iterator[int], asked: list[int], count: int) -> None:
    for index in islice(queue, count):
        peer.sendall(NUMBER.pack(index))
        asked.append(index)


def receive(peer: socket.socket, content: memoryview) -> None:
    peer.settimeout(PATIENCE)
    while content:
        count = peer.recv_into(content)
        if not count:
            raise greeting.StrangerError(0, "the connection closed before the data was complete")
        content = content[count:]
    peer.settimeout(SILENT)


class TransferPace:
    """The transfer rate of one node, compared with its source. count: number of pieces in the content."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bound = max(LEAST, count // SHARE)
        self.went_past = False  # once for falling behind, because this node itself may be the slow one
        self.begin()

    def begin(self) -> None:
        """Reset the counts for a new source."""
        self.behind = self.source_behind = 2**63
        self.turn = -1

    def too_slow(self, own: int, source: int, above: int, turn: int) -> bool:
        """Return whether to skip the source. own, source, above: pieces of this node, of the source, and of the
        source's source. turn: how often the source has changed its own source. The node next to the slow source skips
        it first."""
        if turn != self.turn:
            self.turn, self.source_behind = turn, 2**63
        self.behind = min(self.behind, source - own)
        self.source_behind = min(self.source_behind, above - source)
        # Only nodes below the first of the line may skip their source: a first node with slow reception would otherwise
        # take half of the bandwidth of the complete node, on which all others depend.
        if above < self.count and not self.went_past and source - own - self.behind > self.bound:
            self.went_past = True
            return True
        return above - source - self.source_behind > 2 * self.bound
