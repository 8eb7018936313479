"""Tests a shared folder: the part on one node (plugins/action/shared_data_trial.py).

Run by NodeProgram (plugin_utils) as root, with a verb as argument and a JSON payload on standard input. All file
operations run as the training user.

    write   write this node's file, and sync it to the server
    see     wait for the files of other nodes, and return their owners
    read    read a file of another node
    remove  remove this node's file
"""

from __future__ import annotations

import errno
import os
import pwd
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..tools.as_user import SilentError, as_user
from ..tools.program import answer

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

BLOCK = 1 << 20
PAUSE = 0.02
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def main() -> None:
    answer({"write": write, "see": see, "read": read, "remove": remove})


def write(request: Json) -> Json:
    """Write this node's file. request: {user, folder, name, word, megabytes, seconds}; return {uid, took, error,
    kind}."""

    def work() -> Json:
        # Random data, which a server cannot compress or deduplicate.
        block = os.urandom(BLOCK)
        began = time.monotonic()
        handle = os.open(path(request), os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644)
        try:
            _all(handle, request["word"].encode())
            for number in range(request["megabytes"]):
                _all(handle, number.to_bytes(8, "big") + block[8:])
            os.fsync(handle)
        finally:
            os.close(handle)
        return {"uid": os.getuid(), "took": time.monotonic() - began}

    return _done(request, work, writes=(request["megabytes"] + 1) * BLOCK)


def see(request: Json) -> Json:
    """Wait for the files of other nodes. request: {user, folder, names, word, wait, seconds}; return {seen: {name:
    {after, uid, right}}, error, kind}."""

    def work() -> Json:
        began, left = time.monotonic(), list(request["names"])
        seen: Json = {}
        while left and time.monotonic() - began < request["wait"]:
            for name in list(left):
                found = _word(os.path.join(request["folder"], name), len(request["word"]))
                if found is not None:
                    left.remove(name)
                    uid, word = found
                    seen[name] = {"after": time.monotonic() - began, "uid": uid, "right": word == request["word"]}
            time.sleep(PAUSE)
        return {"seen": seen}

    return _done(request, work)


def read(request: Json) -> Json:
    """Read a file of another node. request: {user, folder, name, seconds}; return {bytes, took, error, kind}."""

    def work() -> Json:
        began, size = time.monotonic(), 0
        handle = os.open(path(request), os.O_RDONLY | FLAGS)
        try:
            # Data in this node's page cache would not come from the server.
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            while chunk := os.read(handle, BLOCK):
                size += len(chunk)
        finally:
            os.close(handle)
        return {"bytes": size, "took": time.monotonic() - began}

    return _done(request, work)


def remove(request: Json) -> Json:
    def work() -> Json:
        with suppress(FileNotFoundError):
            os.unlink(path(request))
        return {}

    return _done(request, work)


def path(request: Json) -> str:
    return os.path.join(request["folder"], request["name"])


def _word(where: str, size: int) -> tuple[int, str] | None:
    """Return the owner and the first bytes of a file; None if the file is missing or empty."""
    try:
        handle = os.open(where, os.O_RDONLY | FLAGS)
    except FileNotFoundError:
        return None
    try:
        word = os.read(handle, size)
        return (os.fstat(handle).st_uid, word.decode("ascii", "replace")) if word else None
    finally:
        os.close(handle)


def _all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _done(request: Json, work: Callable[[], Json], writes: int = 0) -> Json:
    """Run the work as the user with a time limit. Return an error as a sentence together with the name of the error."""

    def tried() -> Json:
        try:
            return {**work(), "error": "", "kind": ""}
        except OSError as problem:
            return {"error": problem.strerror or str(problem), "kind": _name(problem)}

    try:
        user = pwd.getpwnam(request["user"])
    except KeyError:
        return {"error": f"the user {request['user']} does not exist", "kind": "user"}
    try:
        found: Json = as_user(user, tried, seconds=request["seconds"], writes=writes)
    except SilentError as silent:
        return {"error": silent.strerror or "", "kind": "late"}
    return found


def _name(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, "")


if __name__ == "__main__":
    main()
