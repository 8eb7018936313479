"""Getting content from another node: what comes is foreign until its sha256 is what was asked for.

A child process, which is nobody (where this is root), speaks with the network and fills a file without a name. This
process reads that file, and keeps of it what is right.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from ..tools.as_user import SilentError, as_user
from . import greeting, store
from .serving import NUMBER, PATIENCE, SPARE, unprivileged

if TYPE_CHECKING:
    from .manifest import File

Json = dict[str, Any]

ONE_TRY = 3.0  # seconds for a connection
CALLS_FOR = 15.0  # seconds for the other node to listen
BETWEEN = 0.1


def fetch(request: Json) -> Json:
    """request: {store, digest, source: address, port, address: ours, token, seconds}; return {missing, error}."""
    with store.opened(request["store"]) as there:
        wanted = store.missing(there, store.read_manifest(there, request["digest"]))
        if not wanted:
            return {"missing": 0, "error": ""}
        size = sum(file.size for file in wanted)
        # Twice: as it comes, and in its place.
        if 2 * size > store.room(there):
            return {"missing": len(wanted), "error": f"there is no room for {2 * size} bytes in {request['store']}"}
        with store.scratch(there) as handle:
            error = _called(request, wanted, handle, size)
            wrong, at = [], 0
            for file in wanted if not error else []:
                if not store.take(there, file, handle, at):
                    wrong.append(file.path)
                at += file.size
        if wrong:
            error = f"what came as {wrong[0]} is not what was asked for (sha256)"
        return {"missing": len(store.missing(there, wanted)), "error": error}


def _called(request: Json, wanted: list[File], handle: int, size: int) -> str:
    """Fill the file with what is wanted, one behind the other. Return why that failed."""
    try:
        error: str = as_user(
            unprivileged(),
            lambda: _call(request, wanted, handle),
            seconds=request["seconds"] + SPARE,
            writes=size,
        )
    except SilentError as silent:
        return str(silent.strerror)
    return error


# ---------------------------------------------------------------- without any rights


def _call(request: Json, wanted: list[File], handle: int) -> str:
    until = time.monotonic() + request["seconds"]
    try:
        with _connected(request, min(until, time.monotonic() + CALLS_FOR)) as peer:
            peer.settimeout(PATIENCE)
            greeting.introduce(peer, request["token"])
            names = json.dumps([file.sha256 for file in wanted]).encode()
            peer.sendall(NUMBER.pack(len(names)) + names)
            for file in wanted:
                if NUMBER.unpack(greeting.received(peer, NUMBER.size))[0] != file.size:
                    return f"{file.path} has another size there"
                _receive(peer, handle, file.size, until)
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""


def _connected(request: Json, until: float) -> socket.socket:
    """Call until somebody listens: both ends begin at the same time."""
    while True:
        # By itself: create_connection looks addresses up as if they were names, with files that nobody may not read.
        peer = socket.socket(socket.AF_INET6 if ":" in request["source"] else socket.AF_INET)
        try:
            peer.settimeout(ONE_TRY)
            peer.bind((request["address"], 0))
            peer.connect((request["source"], request["port"]))
        except OSError:
            peer.close()
            if time.monotonic() > until:
                raise
        else:
            return peer
        time.sleep(BETWEEN)


def _receive(peer: socket.socket, handle: int, size: int, until: float) -> None:
    buffer = memoryview(bytearray(min(1 << 20, max(1, size))))
    while size:
        if time.monotonic() > until:
            raise TimeoutError(0, "it did not come in time")
        count = peer.recv_into(buffer, min(size, len(buffer)))
        if not count:
            raise greeting.StrangerError(0, "it hung up before all of it had come")
        rest = buffer[:count]
        while rest:
            rest = rest[os.write(handle, rest) :]
        size -= count
