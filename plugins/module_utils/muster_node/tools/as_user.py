"""Runs a function as another user in a child process with limits, to access files that this user might have written.

If root read such files directly, a link could redirect root to any file, a pipe could block the process, and an endless
file could fill its memory. The child process has only the rights of that user, so the kernel denies access to other
users' files. Time, memory and output of the child are limited, and only root can trace it.
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
MOST = 32_000_000  # bytes of the result
MEMORY = 256 << 20  # bytes of memory that the child may add to this process's memory
CHUNK = 1 << 16
END_SECONDS = 2.0  # for the kernel to end a child; a child that hangs in the kernel is left behind


class SilentError(OSError):
    """Raised if the child process returns no result; strerror is the reason."""


def as_user(
    user: pwd.struct_passwd | None,
    work: Callable[[], Any],
    *,
    seconds: float = SECONDS,
    most: int = MOST,
    writes: int = 0,
) -> Any:
    """Return the result of `work`, transferred as JSON. Raises SilentError, also if `work` raises an exception.

    user: the user of the child; requires root. Without root or without a user, the child runs as the current user.
    writes: maximum size of a file that was opened before and that the child writes.
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
        raise SilentError(0, f"the child process ended with exit code {code} and returned no result") from None


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
    """Switch permanently to this user; requires root."""
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)  # also drops all capabilities, and tracing by the user


def _pages() -> int:
    """Return the number of pages in this process's address space."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[0])


def _send(target: int, work: Callable[[], Any]) -> None:
    rest = memoryview(json.dumps(work()).encode())
    while rest:
        rest = rest[os.write(target, rest) :]
    os._exit(0)


def _heard(source: int, deadline: float, most: int) -> bytes | str:
    """Return the data that arrives until the other end is closed, or the reason why the data is incomplete."""
    said = bytearray()
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        chunk = os.read(source, CHUNK)
        if not chunk:
            return bytes(said)
        said += chunk
        if len(said) > most:
            return f"the result is larger than {most} bytes"
    return "no result within the time limit"


def _ended(child: int) -> int | None:
    """Kill a child process and return its exit code. The PID is still valid, because the child has not been waited
    for."""
    deadline = time.monotonic() + END_SECONDS
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None
