"""Giving content to other nodes, for as long as it takes, over the training network.

Root packs what is asked for, each file compared with its sha256, into one file without a name. Then a child process,
which is nobody (where this is root) and has that file alone, listens: it gives out nothing else, to no address but
those of the nodes that it is told, and to nobody without the token. It ends with the last of them, or with its time.
"""

from __future__ import annotations

import ipaddress
import json
import os
import pwd
import select
import signal
import socket
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from ..tools import files
from ..tools.as_user import SilentError, as_user
from . import greeting, store

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

NOBODY = "nobody"
FIRST_CALL = 20.0  # seconds that it listens while nobody calls
PATIENCE = 20.0  # seconds for a step of a transfer
GREETING = 5.0  # seconds for a stranger to prove that it is none
MOST_AT_ONCE = 16
MOST_REQUEST = 2_000_000  # bytes: the digests of as many files as a manifest may list
SPARE = 5.0  # seconds for the child to answer
NUMBER = struct.Struct("!Q")


def serve(request: Json) -> Json:
    """request: {store, digest, wanted: [sha256], address, port, peers: [address], token, seconds}."""
    try:
        with packed(request) as (source, index):
            done: Json = as_user(
                unprivileged(), lambda: _serve(request, source, index), seconds=request["seconds"] + SPARE
            )
            return done
    except SilentError as silent:
        return {"served": 0, "error": f"the process that gives it out ended: {silent.strerror}"}
    except OSError as problem:
        return {"served": 0, "error": f"{problem.filename or request['store']}: {problem.strerror}"}


def unprivileged() -> pwd.struct_passwd | None:
    """Return who speaks with the network: nobody, where this is root."""
    return pwd.getpwnam(NOBODY) if os.geteuid() == 0 else None


@contextmanager
def packed(request: Json) -> Iterator[tuple[int, dict[str, tuple[int, int]]]]:
    """Yield one file with all that is wanted, and where in it each content begins and how long it is."""
    wanted, index, at = set(request["wanted"]), dict[str, tuple[int, int]](), 0
    with store.opened(request["store"]) as there, store.scratch(there) as handle:
        for file in store.read_manifest(there, request["digest"]):
            if file.sha256 in wanted and file.sha256 not in index:
                store.copy(there, file, lambda chunk: store.write_all(handle, chunk))
                index[file.sha256] = (at, file.size)
                at += file.size
        yield handle, index


# ---------------------------------------------------------------- without any rights


def _serve(request: Json, source: int, index: dict[str, tuple[int, int]]) -> Json:
    try:
        listener = listen(request["address"], request["port"])
    except OSError as problem:
        place = f"{request['address']} port {request['port']}"
        return {"served": 0, "error": f"cannot listen on {place}: {problem.strerror}"}
    peers = {ipaddress.ip_address(each) for each in request["peers"]}
    until = time.monotonic() + request["seconds"]
    served, running, idle_since = 0, set[int](), time.monotonic()
    with listener:
        while served < len(peers) and time.monotonic() < until:
            if running:
                idle_since = time.monotonic()
            elif time.monotonic() > idle_since + FIRST_CALL or _nobody_listens():
                break
            if select.select([listener], [], [], 0.05)[0]:
                _accept(listener, peers, running, request["token"], source, index, until)
            served += _ended(running)
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return {"served": served, "error": ""}


def listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=64)


def _nobody_listens() -> bool:
    """Whether whoever asked for this is gone: then its answer has nowhere to go."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _accept(
    listener: socket.socket,
    peers: set[Any],
    running: set[int],
    token: str,
    source: int,
    index: dict[str, tuple[int, int]],
    until: float,
) -> None:
    try:
        peer, whence = listener.accept()
    except OSError:
        return  # gone again
    with peer:
        if ipaddress.ip_address(whence[0].partition("%")[0]) not in peers or len(running) >= MOST_AT_ONCE:
            return
        pid = os.fork()
        if pid == 0:
            try:
                listener.close()
                # Whatever hangs, this process does not outlive the one that listens.
                signal.setitimer(signal.ITIMER_REAL, max(0.1, until - time.monotonic()))
                _give(peer, token, source, index)
                os._exit(0)
            finally:
                os._exit(1)
        running.add(pid)


def _ended(running: set[int]) -> int:
    """Forget the processes that have ended; return how many of them gave all that was asked for."""
    good = 0
    for pid in list(running):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            running.discard(pid)
            good += status == 0
    return good


def _give(peer: socket.socket, token: str, source: int, index: dict[str, tuple[int, int]]) -> None:
    peer.settimeout(GREETING)
    greeting.greet(peer, token)
    peer.settimeout(PATIENCE)
    size = NUMBER.unpack(greeting.received(peer, NUMBER.size))[0]
    if size > MOST_REQUEST:
        raise greeting.StrangerError(0, "it asks for too much")
    with os.fdopen(source, "rb", closefd=False) as stream:
        for digest in json.loads(greeting.received(peer, size)):
            _send(peer, stream, *index[digest])


def _send(peer: socket.socket, stream: BinaryIO, begin: int, size: int) -> None:
    peer.sendall(NUMBER.pack(size))
    if size and peer.sendfile(stream, begin, size) != size:
        raise files.RefusedError(0, "has become shorter")
