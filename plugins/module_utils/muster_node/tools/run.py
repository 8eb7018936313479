"""Running a command on a stranger's machine: it has a time limit, its output is bounded, and why it failed is said."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from . import files

if TYPE_CHECKING:
    import pwd
    from collections.abc import Mapping, Sequence

SECONDS = 6.0
# Sixteen GPUs list a megabyte of clocks that they could run at.
MOST = 4_000_000
CHUNK = 65536
# An ordinary user's path lacks the last two on Debian.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# The same words whatever the administrator's language, and nothing of a login.
CLEAN = {"PATH": PATH, "LC_ALL": "C.UTF-8"}


class CommandResult(NamedTuple):
    """What came, and why nothing came. A command may fail and still have said something: then both are there.

    aside: what it said on its error stream. code: None where it did not start (missing: there is no such command) or
    did not end in time (late).
    """

    text: str
    why: str = ""
    aside: str = ""
    code: int | None = None
    missing: bool = False
    late: bool = False

    @property
    def said(self) -> str:
        """What it says of itself, on one line: for the sentence of a failure."""
        return " ".join((self.aside or self.text).split())


def run(
    *argv: str,
    stdin: str | bytes = "",
    seconds: float | None = SECONDS,
    env: Mapping[str, str] = CLEAN,
    cwd: str = "/",
    user: pwd.struct_passwd | None = None,
    most: int = MOST,
) -> CommandResult:
    """Run a command, and leave it where it is when it hangs: waiting for one that the kernel holds would hang too.

    seconds: None for a package manager alone, which must not be ended between two steps. env: its whole environment.
    user: as whom, which takes root. most: bytes that are kept of each stream; the rest is read and dropped, so that
    the command can end.
    """
    given = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            **_identity(user),
        )
    except FileNotFoundError:
        return CommandResult("", f"{argv[0]} is not there", missing=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        return CommandResult("", f"{argv[0]} cannot be run: {getattr(error, 'strerror', None) or error}")
    said = _talk(process, given, None if seconds is None else time.monotonic() + seconds, most)
    if said is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return CommandResult("", f"{argv[0]} did not answer within {seconds:.0f} s", late=True)
    text, aside = (stream[:most].decode("utf-8", "replace") for stream in said)
    if process.returncode == 0:
        # What is cut is no evidence of what is not in it.
        why = f"{argv[0]} printed more than {most} bytes, and the rest was dropped" if len(said[0]) > most else ""
        return CommandResult(text, why, aside, 0)
    first = aside.split("\n")[0].strip()[:200]
    why = f"{argv[0]} ended with {process.returncode}" + (f": {first}" if first else "")
    return CommandResult(text, why, aside, process.returncode)


def _identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """What makes a process somebody else's. Who is that user already needs nothing, and could not do it."""
    if user is None or os.geteuid() == user.pw_uid != 0:
        return {}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}


def failure(argv: Sequence[str], answer: CommandResult) -> str:
    """Return a sentence about a command that failed; nothing where it did not."""
    if answer.code is None:
        return answer.why
    return f"{' '.join(argv)} ended with code {answer.code} and said: {answer.said or 'nothing'}" if answer.code else ""


def _talk(
    process: subprocess.Popen[bytes], given: bytes, deadline: float | None, most: int
) -> tuple[bytes, bytes] | None:
    """Return what a command said on both streams once it has ended; None where it is late."""
    out, err = bytearray(), bytearray()
    rest = memoryview(given)
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((process.stdin, None), (process.stdout, out), (process.stderr, err)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                event = selectors.EVENT_WRITE if kept is None else selectors.EVENT_READ
                selector.register(stream, event, (stream, kept))
        while selector.get_map() and (deadline is None or time.monotonic() < deadline):
            for key, _ in selector.select(None if deadline is None else deadline - time.monotonic()):
                stream, kept = key.data
                if kept is None:
                    rest = _write_some(key.fd, rest)
                    over = not rest
                else:
                    chunk = os.read(key.fd, CHUNK)
                    kept += chunk[: most + 1 - len(kept)]
                    over = not chunk
                if over:
                    selector.unregister(stream)
                    stream.close()
        late = [key.data[0] for key in selector.get_map().values()]
    for stream in late:
        stream.close()
    try:
        process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return None if late else (bytes(out), bytes(err))


def _write_some(handle: int, rest: memoryview) -> memoryview:
    """Return what is still to be written; nothing where nobody reads it any more."""
    try:
        return rest[os.write(handle, rest[:CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def read(path: str) -> CommandResult:
    """Read a file that the system or this user has written, links included; cut after so many bytes."""
    try:
        said = files.part(path, 0, MOST + 1, links=True)
        why = f"{path} is longer than {MOST} bytes, and was cut" if len(said) > MOST else ""
        return CommandResult(said[:MOST].decode("utf-8", "replace"), why)
    except OSError as error:
        return CommandResult("", f"{path}: {error.strerror}")


def names(folder: str) -> list[str]:
    """Return what a folder holds, or nothing where it cannot be read."""
    try:
        return files.names(folder, links=True)
    except OSError:
        return []
