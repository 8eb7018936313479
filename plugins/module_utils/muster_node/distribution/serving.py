"""Giving pieces to other nodes, for as long as it takes, over the training network.

All of this is done by processes that are nobody (where this is root). They listen, and give out nothing but the whole
that they were handed, to no address but those of the nodes that they are told, and to nobody without the token.
"""

from __future__ import annotations

import ipaddress
import os
import select
import signal
import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from . import greeting, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .pieces import PieceSet

Json = dict[str, Any]

COMES_BACK = 10.0  # seconds that it waits for others where one was lost: those behind it need another giver
PATIENCE = 20.0  # seconds for a step of a transfer
GREETING = 5.0  # seconds for a stranger to prove that it is none
FRESH = 1.0  # seconds in which a caller is expected to prove itself, although this node has no other work left
MOST_AT_ONCE = 8  # nodes that one node gives to
MOST_STRANGERS = 16  # callers that have not proved yet that they are nodes; they take no place of those that have
LOOKS = 0.005  # seconds between two looks whether a piece has come
SIGN = 1.0  # seconds between two signs of life
NUMBER = struct.Struct("!Q")
HEAD = struct.Struct("!QQQQ")  # before each piece: which it is; how many this node has, and how many the one above it;
# how often this node has changed to another giver
SERVED, STRANGER, LOST = range(3)  # how a process ends that speaks with one caller
ROOM = b"+"  # how such a process asks for a place, and is given one
NOTHING, ENOUGH = 2**64 - 1, 2**64 - 2  # in the place of a piece: only a sign of life, and that no more is wanted


class Stranger(NamedTuple):
    """A caller that has not proved itself. admission: on which its process asks for a place."""

    address: str
    since: float
    admission: socket.socket


class PieceServer:
    """request: {peers: [address], token, followed: whether another node was told to take from this one first,
    calls_for: seconds for all to begin}."""

    def __init__(self, request: Json, whole: PieceSet, listener: socket.socket, until: float) -> None:
        self.peers = {ipaddress.ip_address(each) for each in request["peers"]}
        self.token: str = request["token"]
        self.followed: bool = request["followed"]
        self.first_call: float = 1.5 * request["calls_for"]  # seconds that it waits for the node behind it
        self.whole = whole
        self.listener = listener
        self.until = until
        self.parent = os.getppid()
        self.receivers = set[int]()
        self.strangers = dict[int, Stranger]()  # the oldest comes first
        self.content = 0  # callers that have said that they want no more
        self.lost = self.quiet = time.monotonic()
        self.lost -= COMES_BACK

    def run(self) -> None:
        """Serve until this node has all of it, or none of it comes any more, and nobody wants it from here."""
        while time.monotonic() < self.until and os.getppid() == self.parent and not nobody_listens():
            if self.receivers or self.whole.state == pieces.TAKING:
                self.quiet = time.monotonic()
            elif self.enough() and not self.fresh():
                break
            asking = {stranger.admission: pid for pid, stranger in self.strangers.items()}
            for ready in select.select([self.listener, *asking], [], [], 0.02)[0]:
                if ready is self.listener:
                    self.accept()
                elif asking[ready] in self.strangers:  # and was not turned out for another one meanwhile
                    self.admit(asking[ready])
            self.reap()
        for pid in [*self.receivers, *self.strangers]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def fresh(self) -> bool:
        return any(time.monotonic() < stranger.since + FRESH for stranger in self.strangers.values())

    def enough(self) -> bool:
        if not self.followed or self.whole.missing():
            return True
        now = time.monotonic()
        if self.content:
            return now > self.lost + COMES_BACK
        return now > max(self.quiet, self.lost) + self.first_call

    def accept(self) -> None:
        try:
            peer, whence = self.listener.accept()
        except OSError:
            return  # gone again
        with peer:
            address = ipaddress.ip_address(whence[0].partition("%")[0])
            if address not in self.peers or len(self.receivers) >= MOST_AT_ONCE:
                return
            if len(self.strangers) >= MOST_STRANGERS:
                self.turn_out(one_too_many(self.strangers))
            own = os.getpid()
            admission, asks = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                code = STRANGER
                try:
                    self.listener.close()
                    admission.close()
                    # Whatever hangs, this process does not outlive the one that listens.
                    signal.setitimer(signal.ITIMER_REAL, max(0.1, self.until - time.monotonic()))
                    peer.settimeout(GREETING)
                    greeting.greet(peer, self.token, lambda: has_room(asks))
                    code = LOST
                    give(peer, self.whole, own)
                    code = SERVED
                finally:
                    os._exit(code)
            asks.close()
            self.strangers[pid] = Stranger(str(address), time.monotonic(), admission)

    def admit(self, pid: int) -> None:
        """Give a caller that has proved itself a place, if there is one; its process may also have ended instead."""
        admission = self.strangers[pid].admission
        with suppress(OSError):
            if admission.recv(1) and len(self.receivers) < MOST_AT_ONCE:
                admission.sendall(ROOM)
                self.receivers.add(pid)
                self.forget(pid)
                return
        self.turn_out(pid)

    def turn_out(self, pid: int) -> None:
        """End the process of a stranger."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.forget(pid)

    def forget(self, pid: int) -> None:
        self.strangers.pop(pid).admission.close()

    def reap(self) -> None:
        """Forget the processes that have ended."""
        for pid in list(self.strangers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.forget(pid)
        for pid in list(self.receivers):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.receivers.discard(pid)
                served = os.waitstatus_to_exitcode(status) == SERVED
                self.content += served
                if not served:
                    self.lost = time.monotonic()


def has_room(asks: socket.socket) -> bool:
    """Ask the process that listens for a place; in the process of a caller that has proved itself."""
    asks.sendall(ROOM)
    return asks.recv(1) == ROOM


def one_too_many(strangers: Mapping[int, Stranger]) -> int:
    """Return which stranger has to go for another one: the oldest of the address that has most of them.

    So calls from one address turn out nobody from another.
    """
    of = Counter(stranger.address for stranger in strangers.values())
    return max(strangers, key=lambda pid: of[strangers[pid].address])


def listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=64)


def nobody_listens() -> bool:
    """Whether whoever asked for this is gone: then its answer has nowhere to go."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def give(peer: socket.socket, whole: PieceSet, parent: int) -> None:
    """Give one node what it asks for, until it wants no more. Raises OSError."""
    peer.settimeout(PATIENCE)
    while (index := NUMBER.unpack(greeting.received(peer, NUMBER.size))[0]) != ENOUGH:
        if index == NOTHING:
            continue
        if index >= whole.layout.count:
            raise greeting.StrangerError(0, "it asks for what there is not")
        sign = time.monotonic() + SIGN
        while not whole.has(index):
            ended = whole.state != pieces.TAKING
            if (ended and not whole.has(index)) or os.getppid() != parent:
                raise greeting.StrangerError(0, "it does not come here either")
            if time.monotonic() > sign:
                peer.sendall(HEAD.pack(NOTHING, whole.have, whole.above, whole.turn))
                sign = time.monotonic() + SIGN
            time.sleep(LOOKS)
        peer.sendall(HEAD.pack(index, whole.have, whole.above, whole.turn))
        peer.sendall(whole.read(index))
