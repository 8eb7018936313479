"""A connection between two nodes of a launch, on which each end proves with every line that it knows its secret.

Both begin with a line of random characters. Of both, and of the secret, which no other account can read, comes the key
of this one connection; each line behind it is a JSON object with its code (HMAC-SHA-256) over direction, number and
text, so that none can be forged, changed, left out or sent again. Nothing here waits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

Json = dict[str, Any]

NONCE = 32  # characters of the first line
MOST_LINE = 2048  # bytes
MOST_WAITING = 64 * 1024  # bytes that the other end has not taken
CHUNK = 16 * 1024


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
