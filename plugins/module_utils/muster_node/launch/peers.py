"""The mutual end of a detached launch: nobody watches it, so its nodes watch each other.

The main process of each node's unit sends a beat to the head node's every two seconds, on the training network, and
gets one back. Whose part ends badly says so, and the head node says it to all; a node that the head node has not heard
of for SILENCE ends the launch everywhere, and a node that does not hear of the head node ends its own part. A break of
the network that is shorter ends nothing: connections are made anew.
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
MOST_WAITING = 64 * 1024  # bytes that the other end has not taken
CHUNK = 16 * 1024


# ---------------------------------------------------------------- channel

# A connection between two nodes of a launch, on which each end proves with every line that it knows its secret.
#
# Both begin with a line of random characters. Of both, and of the secret, which no other account can read, comes the
# key of this one connection; each line behind it is a JSON object with its code (HMAC-SHA-256) over direction, number
# and text, so that none can be forged, changed, left out or sent again. Nothing here waits.


class Channel:
    """head: whether this end is the head node's. known: whether the other end has proved that it knows the secret."""

    def __init__(self, sock: socket.socket, token: str, *, head: bool) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.token = token.encode()
        self.head = head
        self.nonce = secrets.token_hex(NONCE // 2)
        self.key = b""
        self.inbox = bytearray()
        self.outbox = bytearray(self.nonce.encode() + b"\n")
        self.waiting: list[Json] = []  # to be said as soon as there is a key
        self.said = self.heard = 0
        self.known = self.closed = False
        self.error = ""
        self.since = time.monotonic()

    def say(self, message: Json) -> None:
        if not self.key:
            self.waiting = [message]  # the newest says all
            return
        text = json.dumps(message).encode()
        self.said += 1
        self.outbox += self.code(self.said, text, head=self.head) + b" " + text + b"\n"

    def exchange(self) -> list[Json]:
        """Send and take what there is: the messages of the other end, as far as they are proved to be its own."""
        for act in (self.take, self.send):
            try:
                act()
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as problem:
                self.closed, self.error = True, problem.strerror or str(problem)
                break  # what follows from it says less
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
        """What a line says; one that is not the other end's closes the connection."""
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


SILENCE = 20.0  # seconds; twice what an attached supervisor waits, and at most a third of what is promised
FIRST = 60.0  # seconds until a node is heard of for the first time: it may be told later than others to begin
BEAT = 2.0
RETRY = 1.0  # seconds between two attempts to connect, or to listen
STALE = 6.0  # seconds without an answer after which a connection is made anew: the network may have dropped it
STRANGER = 5.0  # seconds in which a caller proves that it knows the secret
LAST_WORDS = 3.0  # seconds for others to hear how this part ended
HURRY = 1.0  # those where the unit is being stopped
ROOM = 16  # connections beside two of each node
MOST_WHY = 160  # characters
RUNS, DONE, OVER = "runs", "done", "over"


class Alone:
    """A launch that a supervisor watches, or that has one node: nobody is asked and nobody is told."""

    told = False  # whether the others have been told that this part ends

    def step(self) -> str:
        """Do what there is to do, without waiting: why the launch is to end here, or nothing."""
        return ""

    def meet(self, _stopped: Callable[[], bool]) -> str:
        return ""

    def tell(self, _why: str) -> None:
        """Say that this part ends badly; the others have it with the next step."""
        self.told = True

    def see_out(self, _stopped: Callable[[], bool], _until: float, _why: str = "") -> None:
        return


class PeerPart(Alone, ABC):
    """This node's end of it. state, why: how its own part is. over: why the launch is over everywhere."""

    def __init__(self, spec: Json) -> None:
        self.spec = spec
        self.names: list[str] = spec["nodes"]
        self.state, self.why, self.over = RUNS, "", ""
        self.place = (spec["address"], spec["port"])
        self.trouble = ""

    def meet(self, stopped: Callable[[], bool]) -> str:
        """Wait until it is known that the beats come through; why that failed, or nothing."""
        while not (self.met() or stopped()):
            if why := self.step():
                return why
            time.sleep(0.05)
        return ""

    def tell(self, why: str) -> None:
        self.told, self.state, self.why = True, OVER, why[:MOST_WHY]
        self.news()

    def see_out(self, stopped: Callable[[], bool], until: float, why: str = "") -> None:
        """Say how this part ended, and stay until the others know, or need this node no more. why: "" for well."""
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
        return f"{name} has not been heard of for {seconds:.0f} s on port {self.place[1]}{trouble}"[:MOST_WHY]

    @abstractmethod
    def met(self) -> bool: ...

    @abstractmethod
    def settled(self) -> bool: ...

    @abstractmethod
    def news(self) -> None: ...


@dataclass
class Other:
    """A node as the head node knows it. ended: it has said how its part ended."""

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
                self.trouble = f"it cannot be listened on: {problem.strerror}"
        while self.listener:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.channels.append(Channel(sock, self.spec["token"], head=True))
            if len(self.channels) > 2 * len(self.names) + ROOM:
                # Whoever proved nothing makes room first.
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
        """It is over for all; the first reason counts."""
        if not self.over:
            self.over = why
            for channel in self.channels:
                channel.say({"state": OVER, "why": why, "got": ""})

    def met(self) -> bool:
        """The others call the head node; it begins, so that each of them can when it is told to."""
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
            sock.connect_ex(self.place)  # it goes on by itself, and says later how it ended
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
    """What this node has to do with the others of its launch. spec: see PeersRequest; None where nobody is needed."""
    if spec is None or len(spec["nodes"]) < 2:
        return Alone()
    return Head(spec) if spec["rank"] == 0 else PeerNode(spec)


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def listen(place: tuple[str, int]) -> socket.socket:
    """On the training address alone. Raises OSError."""
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
