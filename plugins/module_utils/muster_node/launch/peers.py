"""End a detached launch on all nodes. Because the launch has no supervisor, its nodes monitor each other.

The main process of each node's unit sends a heartbeat to the head node every two seconds over the training network and
receives an answer. A node reports its failure to the head node, which forwards the failure to all nodes. If a node
sends no heartbeat for SILENCE, the head node ends the launch on all nodes. A node that receives no answers from the
head node ends its own part. After shorter network failures, nodes reconnect and the launch continues.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
NONCE = 32  # characters of the first line
MOST_LINE = 2048  # bytes
MOST_WAITING = 64 * 1024  # bytes that the peer has not received
CHUNK = 16 * 1024


# ---------------------------------------------------------------- channel

# A connection between two nodes of a launch. Each end proves with every line that it knows the launch's secret.
#
# Both ends send a line of random characters first. The key of the connection is derived from both lines and the secret,
# which no other account can read. Each further line is a JSON object with its code (HMAC-SHA-256) over direction,
# number and text, so that lines cannot be forged, changed, dropped or replayed. No call blocks.


class Channel:
    """A connection between two nodes. head: whether this end is the head node. known: whether the peer has proved that
    it knows the secret."""

    def __init__(self, sock: socket.socket, token: str, *, head: bool) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.token = token.encode()
        self.head = head
        self.nonce = secrets.token_hex(NONCE // 2)
        self.key = b""
        self.inbox = bytearray()
        self.outbox = bytearray(self.nonce.encode() + b"\n")
        self.waiting: list[Json] = []  # messages until the key is known
        self.said = self.heard = 0
        self.known = self.closed = False
        self.error = ""
        self.since = time.monotonic()

    def say(self, message: Json) -> None:
        if not self.key:
            self.waiting = [message]  # only the newest is needed
            return
        text = json.dumps(message).encode()
        self.said += 1
        self.outbox += self.code(self.said, text, head=self.head) + b" " + text + b"\n"

    def exchange(self) -> list[Json]:
        """Send and receive without blocking. Return the authenticated messages from the peer."""
        for act in (self.take, self.send):
            try:
                act()
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as problem:
                self.closed, self.error = True, problem.strerror or str(problem)
                break  # later errors are only consequences
        found = [message for line in self.lines() if (message := self.read(line)) is not None]
        if len(self.outbox) > MOST_WAITING or len(self.inbox) > MOST_LINE:
            self.closed = True
        return found

    def send(self) -> None:
        if self.outbox:
            del self.outbox[: self.sock.send(self.outbox)]

    def take(self) -> None:
        while len(self.inbox) <= MOST_WAITING:
            chunk = self.sock.recv(CHUNK)
            if not chunk:
                self.closed = True
                return
            self.inbox += chunk

    def lines(self) -> list[bytes]:
        *whole, rest = bytes(self.inbox).split(b"\n")
        self.inbox[:] = rest
        return whole

    def read(self, line: bytes) -> Json | None:
        """Return the message in a line. Close the connection if the line is not authentic."""
        if self.closed and not self.key:
            return None
        if not self.key:
            self.begin(line)
            return None
        code, _, text = line.partition(b" ")
        self.heard += 1
        if not hmac.compare_digest(code, self.code(self.heard, text, head=not self.head)):
            self.closed, self.key = True, b""
            return None
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        self.known = True
        return message if isinstance(message, dict) else None

    def begin(self, line: bytes) -> None:
        if len(line) != NONCE:
            self.closed = True
            return
        ours, theirs = self.nonce.encode(), line
        both = ours + theirs if self.head else theirs + ours
        self.key = hmac.digest(self.token, both, hashlib.sha256)
        for message in self.waiting:
            self.say(message)
        self.waiting = []

    def code(self, number: int, text: bytes, *, head: bool) -> bytes:
        whole = b"%s %d %s" % (b"head" if head else b"node", number, text)
        return hmac.new(self.key, whole, hashlib.sha256).hexdigest().encode()

    def close(self) -> None:
        self.closed = True
        self.sock.close()


SILENCE = 20.0  # seconds; twice the patience of an attached supervisor, and at most a third of the documented limit
FIRST = 60.0  # seconds until the first heartbeat of a node, which may start later than others
BEAT = 2.0
RETRY = 1.0  # seconds between two attempts to connect, or to listen
STALE = 6.0  # seconds without an answer until a node reconnects; the network may have dropped the connection
STRANGER = 5.0  # seconds for a new peer to prove that it knows the secret
LAST_WORDS = 3.0  # seconds for the other nodes to receive this node's outcome
HURRY = 1.0  # the same while the unit is being stopped
ROOM = 16  # connections in addition to two for each node
MOST_WHY = 160  # characters
RUNS, DONE, OVER = "runs", "done", "over"


class Alone:
    """Part of a launch that has a supervisor or a single node, and therefore does not communicate with other nodes."""

    told = False  # whether the other nodes were told that this part ends

    def step(self) -> str:
        """Communicate without blocking. Return the reason why the launch must end on this node, or ""."""
        return ""

    def meet(self, _stopped: Callable[[], bool]) -> str:
        return ""

    def tell(self, _why: str) -> None:
        """Report that this part failed. The next step sends the report to the other nodes."""
        self.told = True

    def see_out(self, _stopped: Callable[[], bool], _until: float, _why: str = "") -> None:
        return


class PeerPart(Alone, ABC):
    """This node's part of a launch. state, why: outcome of this part. over: reason why the launch has ended on all
    nodes."""

    def __init__(self, spec: Json) -> None:
        self.spec = spec
        self.names: list[str] = spec["nodes"]
        self.state, self.why, self.over = RUNS, "", ""
        self.place = (spec["address"], spec["port"])
        self.trouble = ""

    def meet(self, stopped: Callable[[], bool]) -> str:
        """Wait for the first heartbeat. Return the error, or "" on success."""
        while not (self.met() or stopped()):
            if why := self.step():
                return why
            time.sleep(0.05)
        return ""

    def tell(self, why: str) -> None:
        self.told, self.state, self.why = True, OVER, why[:MOST_WHY]
        self.news()

    def see_out(self, stopped: Callable[[], bool], until: float, why: str = "") -> None:
        """Report the outcome of this part, and wait until the other nodes have received the outcome or have ended. why:
        "" for success."""
        if why:
            self.tell(why)
        elif not self.told:
            self.state = DONE
            self.news()
        while not (self.step() or self.settled() or stopped()) and time.monotonic() < until:
            time.sleep(0.05)
        until = time.monotonic() + (HURRY if stopped() else LAST_WORDS)
        while (self.why or self.over) and not self.settled() and time.monotonic() < until:
            self.step()
            time.sleep(0.05)
        self.step()

    def silent(self, name: str, seconds: float) -> str:
        trouble = f" ({self.trouble})" if self.trouble else ""
        return f"no heartbeat from {name} for {seconds:.0f} s on port {self.place[1]}{trouble}"[:MOST_WHY]

    @abstractmethod
    def met(self) -> bool: ...

    @abstractmethod
    def settled(self) -> bool: ...

    @abstractmethod
    def news(self) -> None: ...


@dataclass
class Other:
    """State of another node, as seen by the head node. ended: whether the node has reported its outcome."""

    name: str
    heard: float
    met: bool = False
    ended: bool = False


class Head(PeerPart):
    def __init__(self, spec: Json) -> None:
        super().__init__(spec)
        now = time.monotonic()
        self.others = {rank: Other(name, now) for rank, name in enumerate(self.names) if rank != spec["rank"]}
        self.channels: list[Channel] = []
        self.listener: socket.socket | None = None
        self.retry_at = 0.0

    def step(self) -> str:
        now = time.monotonic()
        self.accept(now)
        for channel in self.channels:
            for message in channel.exchange():
                self.hear(channel, message, now)
            if not channel.known and now > channel.since + STRANGER:
                channel.closed = True
        for channel in [one for one in self.channels if one.closed]:
            channel.close()
            self.channels.remove(channel)
        for other in self.others.values():
            limit = SILENCE if other.met else FIRST
            if not other.ended and now > other.heard + limit:
                self.end(self.silent(other.name, limit))
        return self.over

    def accept(self, now: float) -> None:
        if self.listener is None and now >= self.retry_at:
            self.retry_at = now + RETRY
            try:
                self.listener = listen(self.place)
                self.trouble = ""
            except OSError as problem:
                self.trouble = f"cannot listen: {problem.strerror}"
        while self.listener:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.channels.append(Channel(sock, self.spec["token"], head=True))
            if len(self.channels) > 2 * len(self.names) + ROOM:
                # Unauthenticated connections are closed first.
                one = min(self.channels, key=lambda channel: (channel.known, channel.since))
                one.close()
                self.channels.remove(one)

    def hear(self, channel: Channel, message: Json, now: float) -> None:
        other = self.others.get(message.get("rank", -1))
        if other is None:
            return
        other.heard, other.met = now, True
        state = message.get("state")
        other.ended = other.ended or state in (DONE, OVER)
        if state == OVER:
            self.end(f"{other.name}: {message.get('why')!s}"[:MOST_WHY])
        channel.say({"state": OVER if self.over else RUNS, "why": self.over, "got": state})

    def end(self, why: str) -> None:
        """End the launch on all nodes. Only the first reason is kept."""
        if not self.over:
            self.over = why
            for channel in self.channels:
                channel.say({"state": OVER, "why": why, "got": ""})

    def met(self) -> bool:
        """Return True: the head node does not wait for other nodes, so that each node can connect as soon as it
        starts."""
        return True

    def news(self) -> None:
        if self.state == OVER:
            self.end(f"{self.names[self.spec['rank']]}: {self.why}"[:MOST_WHY])

    def settled(self) -> bool:
        return all(other.ended for other in self.others.values())


class PeerNode(PeerPart):
    def __init__(self, spec: Json) -> None:
        super().__init__(spec)
        self.channel: Channel | None = None
        self.heard = self.last = time.monotonic()
        self.beat_at = self.retry_at = 0.0
        self.met_head = False
        self.got = ""

    def step(self) -> str:
        now = time.monotonic()
        if self.channel is None and now >= self.retry_at:
            self.retry_at = now + RETRY
            self.call(now)
        if self.channel:
            self.talk(self.channel, now)
        limit = SILENCE if self.met_head else FIRST
        if not self.over and now > self.heard + limit:
            self.over = self.silent(f"the head node {self.names[0]}", limit)
        return self.over

    def call(self, now: float) -> None:
        try:
            sock = socket.socket(family(self.place[0]), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self.channel = Channel(sock, self.spec["token"], head=False)
            with suppress(OSError):
                sock.bind((self.spec["own"], 0))
            sock.connect_ex(self.place)  # does not block; errors are reported later
            self.last, self.beat_at = now, 0.0
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)

    def talk(self, channel: Channel, now: float) -> None:
        if now >= self.beat_at:
            self.beat_at = now + BEAT
            channel.say({"rank": self.spec["rank"], "state": self.state, "why": self.why})
        for message in channel.exchange():
            self.heard = self.last = now
            self.met_head = True
            self.trouble = ""
            self.got = message.get("got") or self.got
            if message.get("state") == OVER and not self.over:
                self.over = str(message.get("why"))[:MOST_WHY]
        if channel.closed or now > self.last + STALE:
            self.trouble = channel.error or self.trouble
            channel.close()
            self.channel = None

    def met(self) -> bool:
        return self.met_head

    def news(self) -> None:
        self.beat_at = 0.0

    def settled(self) -> bool:
        return self.got == self.state


def join(spec: Json | None) -> Alone:
    """Return this node's part in the communication of the launch. spec: see PeersRequest; None for no communication."""
    if spec is None or len(spec["nodes"]) < 2:
        return Alone()
    return Head(spec) if spec["rank"] == 0 else PeerNode(spec)


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def listen(place: tuple[str, int]) -> socket.socket:
    """Listen on the training address only. Raises OSError."""
    sock = socket.socket(family(place[0]), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(place)
        sock.listen(64)
    except OSError:
        sock.close()
        raise
    return sock
