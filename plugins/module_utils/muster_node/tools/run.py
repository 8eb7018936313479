"""Runs commands on nodes with a time limit and bounded output, and reports the reason for failures."""

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
# Sixteen GPUs list one megabyte of supported clocks.
MOST = 4_000_000
CHUNK = 65536
# On Debian, a normal user's PATH does not contain the last two.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Output independent of the administrator's language, without login variables.
CLEAN = {"PATH": PATH, "LC_ALL": "C.UTF-8"}


class CommandResult(NamedTuple):
    """The output of a command, and the reason if the command failed. A failed command can have output as well.

    aside: standard error. code: None if the command did not start (missing: not installed) or timed out (late).
    """

    text: str
    why: str = ""
    aside: str = ""
    code: int | None = None
    missing: bool = False
    late: bool = False

    @property
    def said(self) -> str:
        """Return standard error, or standard output if that is empty, on one line for an error message."""
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
    """Run a command. A command that hangs in the kernel is killed but not waited for, because waiting would hang as
    well.

    seconds: time limit; None only for package managers, which must not be interrupted. env: complete environment. user:
    user to run as; requires root. most: number of bytes to keep from each stream; further output is read and dropped,
    so that the command can end.
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
        # Truncated output proves nothing about missing content.
        why = f"the output of {argv[0]} was truncated after {most} bytes" if len(said[0]) > most else ""
        return CommandResult(text, why, aside, 0)
    first = aside.split("\n")[0].strip()[:200]
    why = f"{argv[0]} ended with {process.returncode}" + (f": {first}" if first else "")
    return CommandResult(text, why, aside, process.returncode)


def _identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return Popen's arguments to run as another user. For the current user, return no arguments, because an
    unprivileged process could not set them."""
    if user is None or os.geteuid() == user.pw_uid != 0:
        return {}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}


def failure(argv: Sequence[str], answer: CommandResult) -> str:
    """Return a sentence about the failure of a command, or an empty string if it succeeded."""
    if answer.code is None:
        return answer.why
    return f"{' '.join(argv)} ended with exit code {answer.code}: {answer.said or 'no output'}" if answer.code else ""


def _talk(
    process: subprocess.Popen[bytes], given: bytes, deadline: float | None, most: int
) -> tuple[bytes, bytes] | None:
    """Write the input and read both output streams until the command ends. Return the streams, or None after a
    timeout."""
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
    """Write a part of the data. Return the rest, or no data if the reader is gone."""
    try:
        return rest[os.write(handle, rest[:CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def read(path: str) -> CommandResult:
    """Read a file that the system or this user wrote, following links. The text is truncated after MOST bytes."""
    try:
        said = files.part(path, 0, MOST + 1, links=True)
        why = f"{path} was truncated after {MOST} bytes" if len(said) > MOST else ""
        return CommandResult(said[:MOST].decode("utf-8", "replace"), why)
    except OSError as error:
        return CommandResult("", f"{path}: {error.strerror}")


def names(folder: str) -> list[str]:
    """Return the names of the entries in a folder; [] if the folder cannot be read."""
    try:
        return files.names(folder, links=True)
    except OSError:
        return []
