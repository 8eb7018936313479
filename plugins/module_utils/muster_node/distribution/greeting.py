"""Mutual authentication of both ends of a transfer. Each end proves that it knows the token without sending the token.

The listener sends 32 random bytes. The caller answers with 32 random bytes of its own and a proof over both. Then the
listener sends its proof. A proof is valid for this connection only.
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
    """Raised if the other end does not know the token or does not follow the protocol."""


def greet(peer: socket.socket, token: str, admitted: Callable[[], bool] = lambda: True) -> None:
    """Authenticate as the listener. admitted: whether an authenticated caller can be served. Raises OSError."""
    ours = os.urandom(SIZE)
    peer.sendall(ours)
    theirs = received(peer, SIZE)
    _expect(received(peer, SIZE), _proof(token, CALLER, ours, theirs))
    if not admitted():
        raise StrangerError(0, "too many connections")
    peer.sendall(_proof(token, LISTENER, ours, theirs))


def introduce(peer: socket.socket, token: str) -> None:
    """Authenticate as the caller. Raises OSError."""
    theirs = received(peer, SIZE)
    ours = os.urandom(SIZE)
    peer.sendall(ours + _proof(token, CALLER, theirs, ours))
    _expect(received(peer, SIZE), _proof(token, LISTENER, theirs, ours))


def received(peer: socket.socket, size: int) -> bytes:
    """Receive exactly this number of bytes. Raises OSError if the other end closes the connection earlier."""
    found = bytearray()
    while len(found) < size:
        chunk = peer.recv(min(1 << 20, size - len(found)))
        if not chunk:
            raise StrangerError(0, "the connection was closed")
        found += chunk
    return bytes(found)


def _proof(token: str, who: bytes, of_listener: bytes, of_caller: bytes) -> bytes:
    return hmac.new(token.encode(), who + of_listener + of_caller, hashlib.sha256).digest()


def _expect(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise StrangerError(0, "the token is wrong")
