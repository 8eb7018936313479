"""Reads kernel log lines since a given time that explain failed or slow launches. Requires root."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import Any

from ..tools import files
from ..tools.kernel_lines import from_journal, kind_of
from ..tools.run import run
from .parts import UnseenError

Json = dict[str, Any]

KMSG = "/dev/kmsg"
SECONDS = 1.0
MOST_RECORD = 8192  # bytes: the kernel's own limit
MOST_LINES = 200
MOST_TEXT = 300  # characters of a line
MOST_JOURNAL = 5000  # lines
# In addition to tools/kernel_lines.py: errors that end one process, and packets blocked by a firewall.
MORE = re.compile(
    r"oom-kill:|segfault at|general protection|traps: |trap invalid opcode|nf_conntrack|martian source|"
    r"SYN flooding|\[UFW (?:BLOCK|LIMIT)|Out of socket memory|No space left|task \S+ blocked",
    re.IGNORECASE,
)


def since(began: float) -> list[Json]:
    """Return the newest kernel log lines, oldest first. began: time on the monotonic clock. Raises UnseenError."""
    lines, reach = ring(time.monotonic() + SECONDS)
    if reach is None or reach > began:  # no ring buffer, or it has lost lines of this time
        lines = journal(began) or lines
        if not lines and reach is None:
            raise UnseenError(f"neither {KMSG} nor the journal contains the kernel log")
    beyond = time.time() - time.monotonic()
    worth = [(when, text) for when, text in lines if when >= began and (kind_of(text)[0] or MORE.search(text))]
    return [{"at": round(beyond + when, 3), "text": text[:MOST_TEXT]} for when, text in worth[-MOST_LINES:]]


def ring(until: float) -> tuple[list[tuple[float, str]], float | None]:
    """Return the lines of the kernel's ring buffer and the time of the oldest line; None if no line can be read."""
    try:
        handle = os.open(KMSG, os.O_RDONLY | files.SAFE)
    except OSError:
        return [], None
    found: list[tuple[float, str]] = []
    oldest: float | None = None
    try:
        while time.monotonic() < until:
            with suppress(BrokenPipeError):  # the record was overwritten; the next read continues after it
                record = os.read(handle, MOST_RECORD).decode("utf-8", "replace")
                when, text = parsed(record)
                oldest = when if oldest is None else oldest
                if text:
                    found.append((when, text))
    except (BlockingIOError, ValueError):
        pass  # no more records
    finally:
        os.close(handle)
    return found, oldest


def parsed(record: str) -> tuple[float, str]:
    """Parse "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT". Messages with priority 8 or higher are not from the kernel."""
    head, _, text = record.partition(";")
    words = head.split(",")
    own = int(words[0]) < 8
    return int(words[2]) / 1e6, text.partition("\n")[0] if own else ""


def journal(began: float) -> list[tuple[float, str]]:
    at = time.time() - (time.monotonic() - began)
    words = ("--dmesg", "--boot", "--no-pager", "--quiet", "--reverse", f"--lines={MOST_JOURNAL}")
    said = run("journalctl", *words, f"--since=@{at:.0f}", "--output=short-monotonic", seconds=SECONDS)
    return from_journal(said.text)
