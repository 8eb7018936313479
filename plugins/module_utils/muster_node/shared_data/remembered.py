"""Cache file digests, because data is too large to be read each time. A file counts as unchanged if its inode, size and
times are unchanged. No program can set the change time. The cache is valid for one boot, because after a power loss a
file can differ from what was written.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..tools import files

BOOT = "/proc/sys/kernel/random/boot_id"
MOST = 64_000_000  # bytes, for 200,000 files
TICK = 2.0  # seconds, the time resolution of some file systems


class Remembered:
    """The digest cache of one folder. kept: folder that contains the cache. folder: folder whose files are cached."""

    def __init__(self, kept: str, folder: str) -> None:
        self.file = Path(kept) / f"{hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:16]}.json"
        self.boot = files.text(BOOT)
        self.known: dict[str, Any] = self._read()

    def get(self, path: str, seen: os.stat_result) -> str | None:
        """Return the sha256 of a file if the file is certainly unchanged, else None."""
        entry = self.known.get(path)
        return str(entry[1]) if isinstance(entry, list) and len(entry) == 2 and entry[0] == _stamp(seen) else None

    def put(self, path: str, seen: os.stat_result, sha256: str, read_at: float | None = None) -> None:
        """Store the sha256 of a file. read_at: time when reading began; pass it if other users can write to the file,
        because two changes within one clock tick have the same time stamp."""
        if read_at is None or seen.st_ctime < read_at - TICK:
            self.known[path] = [_stamp(seen), sha256]

    def save(self) -> None:
        text = json.dumps({"boot": self.boot, "files": self.known})
        files.replace(str(self.file), text.encode(), mode=0o600, parents=True)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(files.read(str(self.file), most=MOST, owner=os.geteuid()))
        except (OSError, ValueError):
            return {}
        usable = isinstance(found, dict) and found.get("boot") == self.boot and isinstance(found.get("files"), dict)
        return dict(found["files"]) if usable else {}


def _stamp(seen: os.stat_result) -> list[int]:
    return [seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
