"""Taking pieces from other nodes: what comes is foreign until its sha256 is what was announced.

Done by a process that is nobody (where this is root). A piece that is right is kept at once, and passed on by others
of its processes. When a source dies, does not respond, is slow or sends what is wrong, the next one is asked.

A node skips a slow source. With each piece it is told how far its source is, how far the source above that is, and how
often its source has changed to another one. What counts is whether the distance has grown since then.
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
SILENT = 5.0  # seconds without a sign of life: a giver that waits itself gives one each second
TRIES = 2  # of one giver
ASKED_AT_ONCE = 8  # pieces
LEAST = 24  # pieces: more than are asked for ahead
SHARE = 16  # of the whole: by so much one may fall behind


class WrongError(Exception):
    """What came is not what was announced."""


class Giver(NamedTuple):
    address: str
    port: int


class Taker:
    """request: {givers: [[address, port], ...], the first first; address: ours; token; calls_for}. until: when it gives
    up."""

    def __init__(self, request: Json, whole: PieceSet, until: float) -> None:
        self.givers = [Giver(*each) for each in request["givers"]]
        self.address: str = request["address"]
        self.token: str = request["token"]
        self.calls_for: float = request["calls_for"]  # seconds for a giver to begin to listen
        self.whole = whole
        self.until = until
        self.pace = TransferPace(whole.layout.count)
        self.tries = dict.fromkeys(self.givers, 0)
        self.came: dict[str, int] = {}
        self.why = "there is nobody to ask"
        self.peer: socket.socket | None = None
        self.at = Giver("", 0)
        self.asked = ""  # the address of the last one that was called

    def run(self) -> None:
        """Take until all of it is there, or nobody is left to ask; `why` says what was wrong last."""
        if self.givers and not self.whole.missing():  # its giver waits for it all the same
            with suppress(OSError):
                self.change(self.givers[0], self.called(self.givers[0], self.calls_for))
        while self.whole.missing():
            left = [each for each in self.givers if self.tries[each] < TRIES]
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

    def change(self, giver: Giver, peer: socket.socket | None) -> None:
        """Go on with this one; the one before hears that no more is wanted."""
        before, self.at, self.peer = self.peer, giver, peer
        if before is not None:
            with before, suppress(OSError):
                before.sendall(NUMBER.pack(ENOUGH))

    def sign(self) -> None:
        """Let the giver know that this node is still there, and may have others behind it."""
        if self.peer is not None:
            try:
                self.peer.sendall(NUMBER.pack(NOTHING))
            except OSError:
                self.change(self.at, None)

    # ------------------------------------------------------------ one giver

    def called(self, giver: Giver, patience: float) -> socket.socket:
        """Call until somebody listens: all begin at the same time."""
        until = min(self.until, time.monotonic() + patience)
        self.asked = giver.address
        while True:
            # By itself: create_connection looks addresses up as if they were names, in files that nobody may not read.
            peer = socket.socket(socket.AF_INET6 if ":" in giver.address else socket.AF_INET)
            try:
                peer.settimeout(ONE_TRY)
                peer.bind((self.address, 0))
                peer.connect(giver)
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
        """Take what is missing from the giver of now, in its order, some pieces asked for ahead. Return whether it
        goes on with another giver."""
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
                raise TimeoutError(0, "it did not come in time")
            index, have, above, turn = HEAD.unpack(greeting.received(peer, HEAD.size))
            whole.above = min(have, count)
            if index != NOTHING:
                if index != asked[0]:
                    raise WrongError(f"{self.at.address} sends what nobody has asked for")
                content = buffer[: whole.layout.place(index)[1]]
                receive(peer, content)
                if hashlib.sha256(content).hexdigest() != whole.digests[index]:
                    raise WrongError(f"what came from {self.at.address} is not what was asked for (sha256)")
                whole.put(index, content)
                own += 1
                self.came[self.at.address] = self.came.get(self.at.address, 0) + 1
                del asked[0]
                ask(peer, queue, asked, 1)
            if self.pace.too_slow(own, have, above, turn) and self.go_past():
                return True
        return False

    def go_past(self) -> bool:
        """Take from the one before this giver, if it lets: whoever is slow does not make all behind it slow."""
        before = self.givers[self.givers.index(self.at) + 1 :]
        for giver in before:
            if self.tries[giver] < TRIES:
                self.tries[giver] += 1
                with suppress(OSError):
                    self.change(giver, self.called(giver, 0.0))
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
            raise greeting.StrangerError(0, "it hung up before all of it had come")
        content = content[count:]
    peer.settimeout(SILENT)


class TransferPace:
    """Of one node. count: pieces of the whole."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bound = max(LEAST, count // SHARE)
        self.went_past = False  # because this node fell behind: once, for that may be its own fault
        self.begin()

    def begin(self) -> None:
        """It takes from another giver from now on."""
        self.behind = self.giver_behind = 2**63
        self.turn = -1

    def too_slow(self, own: int, giver: int, above: int, turn: int) -> bool:
        """Whether to take from the one above. All but turn in pieces. Who is nearest to what is slow moves first."""
        if turn != self.turn:
            self.turn, self.giver_behind = turn, 2**63
        self.behind = min(self.behind, giver - own)
        self.giver_behind = min(self.giver_behind, above - giver)
        # Nobody goes past the first of its line to the one that had all of it: a node that cannot receive faster would
        # take half of what all others live on.
        if above < self.count and not self.went_past and giver - own - self.behind > self.bound:
            self.went_past = True
            return True
        return above - giver - self.giver_behind > 2 * self.bound
