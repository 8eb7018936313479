"""Doing something as another user, in a process of its own that has limits: for whatever that user may have written.

Root that reads it by itself can be led to any file by a link, held up by a pipe, and filled by an endless file. The
child is that user and nobody else, so the kernel refuses what is not theirs; it has limits on time, memory and what it
says; and nobody but root may look into it, or trace it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pwd
    from collections.abc import Callable

SECONDS = 10.0
MOST = 32_000_000  # bytes of the answer
MEMORY = 256 << 20  # bytes that the child may add to what this process has
CHUNK = 1 << 16
END_SECONDS = 2.0  # for the kernel to end a child; one that hangs in it is left behind


class SilentError(OSError):
    """There is no answer: strerror says why."""


def as_user(
    user: pwd.struct_passwd | None,
    work: Callable[[], Any],
    *,
    seconds: float = SECONDS,
    most: int = MOST,
    writes: int = 0,
) -> Any:
    """Return what `work` returned, as JSON carries it. Raises SilentError; also where `work` raised anything.

    user: who is to do it, which takes root; where this process is not root's, or without one, it is done as this user.
    writes: bytes that a file may have which it writes, for one that was opened beforehand.
    """
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(source)
            _become(user, seconds, writes)
            _send(target, work)
        finally:
            os._exit(1)
    os.close(target)
    try:
        said = _heard(source, time.monotonic() + seconds, most)
    finally:
        os.close(source)
        code = _ended(child)
    if isinstance(said, str):
        raise SilentError(0, said)
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        raise SilentError(0, f"it ended with {code} before it had answered") from None


def _become(user: pwd.struct_passwd | None, seconds: float, writes: int) -> None:
    limits = {
        resource.RLIMIT_CPU: int(seconds) + 1,
        resource.RLIMIT_FSIZE: writes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: int(_pages() * resource.getpagesize()) + MEMORY,
    }
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (value, value))
    if user is not None and os.geteuid() == 0:
        become(user)


def become(user: pwd.struct_passwd) -> None:
    """Be that user and nobody else from here on, which takes root."""
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)  # which takes all capabilities, and tracing by that user


def _pages() -> int:
    """Pages of memory that this process has addresses for."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[0])


def _send(target: int, work: Callable[[], Any]) -> None:
    rest = memoryview(json.dumps(work()).encode())
    while rest:
        rest = rest[os.write(target, rest) :]
    os._exit(0)


def _heard(source: int, deadline: float, most: int) -> bytes | str:
    """Return what came until the other end was closed, or why that is not all."""
    said = bytearray()
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        chunk = os.read(source, CHUNK)
        if not chunk:
            return bytes(said)
        said += chunk
        if len(said) > most:
            return f"it answered with more than {most} bytes"
    return "it did not answer in time"


def _ended(child: int) -> int | None:
    """End a child, which nobody else has waited for, so that its number is still its own."""
    deadline = time.monotonic() + END_SECONDS
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None
