"""Writing a file so that nobody ever reads half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: str, content: bytes) -> None:
    """Put a file in its place at once, and its folder before it where that is missing.

    One that is there keeps its mode and owner; a new one may be read by all, as apt reads some as a user of its own.
    """
    target = Path(path)
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Without an ending that apt or systemd would read.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            there = target.stat() if target.exists() else None
            os.fchmod(stream.fileno(), there.st_mode & 0o7777 if there else 0o644)
            if there:
                os.fchown(stream.fileno(), there.st_uid, there.st_gid)
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
