"""A file that is there whole or not at all, and known for torn where it is not.

It is written under another name in the same folder, brought to the disk, and renamed: rename(2) replaces a file in one
step, and fsync(2) says that the folder needs its own. Its digest is inside, so that both are there or neither. A disk
that is full or a file server that lost its memory may tear it nevertheless: its first line tells.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"acceptance-file"


class TornError(Exception):
    """A file is not what was written."""


def write(path: Path, content: bytes) -> int:
    """Return how many bytes the file has."""
    head = b"%s %s %d\n" % (MAGIC, hashlib.sha256(content).hexdigest().encode(), len(content))
    descriptor, part = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(head + content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return len(head) + len(content)


def read(path: Path) -> bytes:
    """What was written there; TornError says how the file differs from that."""
    head, end, content = path.read_bytes().partition(b"\n")
    words = head.split()
    if not end or len(words) != 3 or words[0] != MAGIC or not words[2].isdigit():
        raise TornError("has no head")
    if len(content) != int(words[2]):
        raise TornError(f"has {len(content)} of {int(words[2])} bytes")
    if hashlib.sha256(content).hexdigest().encode() != words[1]:
        raise TornError("has other bytes than were written")
    return content


def newest(folder: Path, pattern: str) -> tuple[str, bytes | None, list[str]]:
    """Of the files of this pattern, the last name that is whole and its content, and what was refused before it."""
    refused: list[str] = []
    for path in sorted(folder.glob(pattern), reverse=True):
        try:
            return path.name, read(path), refused
        except (TornError, OSError) as problem:
            refused.append(f"{path.name} {problem}")
    return "", None, refused
