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
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import greeting, pieces

if TYPE_CHECKING:
    from .pieces import Whole

Json = dict[str, Any]

COMES_BACK = 10.0  # seconds that it waits for others where one was lost: those behind it need another giver
PATIENCE = 20.0  # seconds for a step of a transfer
GREETING = 5.0  # seconds for a stranger to prove that it is none
MOST_AT_ONCE = 8  # nodes that one node gives to, and strangers
LOOKS = 0.005  # seconds between two looks whether a piece has come
SIGN = 1.0  # seconds between two signs of life
NUMBER = struct.Struct("!Q")
HEAD = struct.Struct("!QQQQ")  # before each piece: which it is; how many this node has, and how many the one above it;
# how often this node has changed to another giver
SERVED, STRANGER, LOST = range(3)  # how a process ends that speaks with one caller
NOTHING, ENOUGH = 2**64 - 1, 2**64 - 2  # in the place of a piece: only a sign of life, and that no more is wanted


class Listener:
    """request: {peers: [address], token, followed: whether another node was told to take from this one first,
    calls_for: seconds for all to begin}."""

    def __init__(self, request: Json, whole: Whole, listener: socket.socket, until: float) -> None:
        self.peers = {ipaddress.ip_address(each) for each in request["peers"]}
        self.token: str = request["token"]
        self.followed: bool = request["followed"]
        self.first_call: float = 1.5 * request["calls_for"]  # seconds that it waits for the node behind it
        self.whole = whole
        self.listener = listener
        self.until = until
        self.parent = os.getppid()
        self.running = set[int]()
        self.content = 0  # callers that have said that they want no more
        self.lost = self.quiet = time.monotonic()
        self.lost -= COMES_BACK

    def run(self) -> None:
        """Serve until this node has all of it, or none of it comes any more, and nobody wants it from here."""
        while time.monotonic() < self.until and os.getppid() == self.parent and not nobody_listens():
            if self.running or self.whole.state == pieces.TAKING:
                self.quiet = time.monotonic()
            elif self.enough():
                break
            if select.select([self.listener], [], [], 0.02)[0]:
                self.accept()
            self.reap()
        for pid in self.running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

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
            known = ipaddress.ip_address(whence[0].partition("%")[0]) in self.peers
            if not known or len(self.running) >= MOST_AT_ONCE:
                return
            own = os.getpid()
            pid = os.fork()
            if pid == 0:
                code = STRANGER
                try:
                    self.listener.close()
                    # Whatever hangs, this process does not outlive the one that listens.
                    signal.setitimer(signal.ITIMER_REAL, max(0.1, self.until - time.monotonic()))
                    peer.settimeout(GREETING)
                    greeting.greet(peer, self.token)
                    code = LOST
                    give(peer, self.whole, own)
                    code = SERVED
                finally:
                    os._exit(code)
            self.running.add(pid)

    def reap(self) -> None:
        """Forget the processes that have ended."""
        for pid in list(self.running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.running.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                self.content += code == SERVED
                if code not in (SERVED, STRANGER):
                    self.lost = time.monotonic()


def listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=64)


def nobody_listens() -> bool:
    """Whether whoever asked for this is gone: then its answer has nowhere to go."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def give(peer: socket.socket, whole: Whole, parent: int) -> None:
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
