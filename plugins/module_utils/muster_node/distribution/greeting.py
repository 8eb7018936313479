"""How the two ends of a transfer know each other: each proves that it has the token, which never goes over the wire.

Whoever listens says 32 random bytes; whoever calls answers with 32 of its own and a proof over both; then the other
side proves it, too. A proof is of use on this connection alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SIZE = 32  # bytes of a random text, and of a proof
CALLER, LISTENER = b"muster caller", b"muster listener"


class StrangerError(OSError):
    """The other end does not know the token, or says nothing that a transfer begins with."""


def greet(peer: socket.socket, token: str, admitted: Callable[[], bool] = lambda: True) -> None:
    """As the one who listens. admitted: whether there is room for a caller that has proved itself. Raises OSError."""
    ours = os.urandom(SIZE)
    peer.sendall(ours)
    theirs = received(peer, SIZE)
    _expect(received(peer, SIZE), _proof(token, CALLER, ours, theirs))
    if not admitted():
        raise StrangerError(0, "there is no room for it")
    peer.sendall(_proof(token, LISTENER, ours, theirs))


def introduce(peer: socket.socket, token: str) -> None:
    """As the one who calls. Raises OSError."""
    theirs = received(peer, SIZE)
    ours = os.urandom(SIZE)
    peer.sendall(ours + _proof(token, CALLER, theirs, ours))
    _expect(received(peer, SIZE), _proof(token, LISTENER, theirs, ours))


def received(peer: socket.socket, size: int) -> bytes:
    """Return so many bytes. Raises OSError where the other end has closed before."""
    found = bytearray()
    while len(found) < size:
        chunk = peer.recv(min(1 << 20, size - len(found)))
        if not chunk:
            raise StrangerError(0, "it hung up")
        found += chunk
    return bytes(found)


def _proof(token: str, who: bytes, of_listener: bytes, of_caller: bytes) -> bytes:
    return hmac.new(token.encode(), who + of_listener + of_caller, hashlib.sha256).digest()


def _expect(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise StrangerError(0, "it does not know the token")
