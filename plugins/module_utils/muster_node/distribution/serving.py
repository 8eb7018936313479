"""Send pieces to other nodes over the training network.

The processes run as nobody if their parent is root. They serve only the content of this distribution, only to the
listed node addresses, and only to callers that know the token.
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

COMES_BACK = 10.0  # seconds to wait after a lost receiver: nodes behind it need another source
PATIENCE = 20.0  # seconds for a step of a transfer
GREETING = 5.0  # seconds for a caller to authenticate
FRESH = 1.0  # seconds to wait for a caller's authentication before this node exits
MOST_AT_ONCE = 8  # receivers of one node
MOST_STRANGERS = 16  # unauthenticated callers; they are counted separately
LOOKS = 0.005  # seconds between polls for a piece
SIGN = 1.0  # seconds between keep-alive messages
NUMBER = struct.Struct("!Q")
HEAD = struct.Struct("!QQQQ")  # before each piece: its index; the pieces of this node, and of its own source;
# how often this node has changed its source
SERVED, STRANGER, LOST = range(3)  # exit codes of the process for one caller
ROOM = b"+"  # request for a slot, and the grant
NOTHING, ENOUGH = 2**64 - 1, 2**64 - 2  # instead of a piece index: keep-alive; no more pieces needed


class Stranger(NamedTuple):
    """An unauthenticated caller. admission: socket on which the caller's process requests a slot."""

    address: str
    since: float
    admission: socket.socket


class PieceServer:
    """Sends pieces to other nodes. request: {peers: [address], token, followed: whether this node is another node's
    preferred source, calls_for: seconds within which all nodes must begin}."""

    def __init__(self, request: Json, whole: PieceSet, listener: socket.socket, until: float) -> None:
        self.peers = {ipaddress.ip_address(each) for each in request["peers"]}
        self.token: str = request["token"]
        self.followed: bool = request["followed"]
        self.first_call: float = 1.5 * request["calls_for"]  # seconds to wait for the node behind it
        self.whole = whole
        self.listener = listener
        self.until = until
        self.parent = os.getppid()
        self.receivers = set[int]()
        self.strangers = dict[int, Stranger]()  # oldest first
        self.content = 0  # receivers that reported that they need no more
        self.lost = self.quiet = time.monotonic()
        self.lost -= COMES_BACK

    def run(self) -> None:
        """Serve until this node has all pieces or cannot receive more, and no receiver needs this node."""
        while time.monotonic() < self.until and os.getppid() == self.parent and not nobody_listens():
            if self.receivers or self.whole.state == pieces.TAKING:
                self.quiet = time.monotonic()
            elif self.enough() and not self.fresh():
                break
            asking = {stranger.admission: pid for pid, stranger in self.strangers.items()}
            for ready in select.select([self.listener, *asking], [], [], 0.02)[0]:
                if ready is self.listener:
                    self.accept()
                elif asking[ready] in self.strangers:  # not dropped in the meantime for another caller
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
            return  # already disconnected
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
                    # A hanging process must not outlive the listener.
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
        """Give an authenticated caller a slot if one is free. The caller's process might have ended in the meantime."""
        admission = self.strangers[pid].admission
        with suppress(OSError):
            if admission.recv(1) and len(self.receivers) < MOST_AT_ONCE:
                admission.sendall(ROOM)
                self.receivers.add(pid)
                self.forget(pid)
                return
        self.turn_out(pid)

    def turn_out(self, pid: int) -> None:
        """Kill the process of an unauthenticated caller."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.forget(pid)

    def forget(self, pid: int) -> None:
        self.strangers.pop(pid).admission.close()

    def reap(self) -> None:
        """Reap finished processes."""
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
    """Request a slot from the listening process. Called in the process of an authenticated caller."""
    asks.sendall(ROOM)
    return asks.recv(1) == ROOM


def one_too_many(strangers: Mapping[int, Stranger]) -> int:
    """Return which unauthenticated caller to drop: the oldest caller from the address with the most callers.

    Therefore calls from one address cannot displace callers from other addresses.
    """
    of = Counter(stranger.address for stranger in strangers.values())
    return max(strangers, key=lambda pid: of[strangers[pid].address])


def listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=64)


def nobody_listens() -> bool:
    """Return whether the reader of standard output is gone, so that nothing can receive the result."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def give(peer: socket.socket, whole: PieceSet, parent: int) -> None:
    """Send the pieces that a node requests, until the node needs no more. Raises OSError."""
    peer.settimeout(PATIENCE)
    while (index := NUMBER.unpack(greeting.received(peer, NUMBER.size))[0]) != ENOUGH:
        if index == NOTHING:
            continue
        if index >= whole.layout.count:
            raise greeting.StrangerError(0, "the requested piece does not exist")
        sign = time.monotonic() + SIGN
        while not whole.has(index):
            ended = whole.state != pieces.TAKING
            if (ended and not whole.has(index)) or os.getppid() != parent:
                raise greeting.StrangerError(0, "this node will not receive the requested piece")
            if time.monotonic() > sign:
                peer.sendall(HEAD.pack(NOTHING, whole.have, whole.above, whole.turn))
                sign = time.monotonic() + SIGN
            time.sleep(LOOKS)
        peer.sendall(HEAD.pack(index, whole.have, whole.above, whole.turn))
        peer.sendall(whole.read(index))
