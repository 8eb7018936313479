"""List a data folder on the controller or on a node: files, links, and entries that cannot be copied.

Links are not followed, because other users might write to the folder at the same time. If a file changes during
reading, the change is reported.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from ..distribution import manifest
from ..distribution.manifest import ManifestFile
from ..tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .remembered import Remembered

STORE = ".muster-data"  # incomplete files, in the folder itself
MOST_FILES = 150_000
MOST_ENTRIES = 2 * MOST_FILES  # also folders, and entries that cannot be copied
SECONDS = 240.0  # less than the controller waits
MOST_FILE = 100_000_000_000  # bytes
MOST_PROBLEMS = 20


class Walked(NamedTuple):
    """Result of a walk. files: [path, executable, size]; links: [path, target]; problems: sentences; more: number of
    further problems."""

    files: list[tuple[str, bool, int]]
    links: list[tuple[str, str]]
    problems: list[str]
    more: int = 0


class Walk:
    """Walks a folder. owner: uid that must own all entries; None for no check (if the reader is an unprivileged
    user)."""

    def __init__(self, folder: int, owner: int | None) -> None:
        self.folder = folder
        self.owner = owner
        self.files: list[tuple[str, bool, int]] = []
        self.links: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.more = 0

    def run(self) -> Walked:
        deadline = time.monotonic() + SECONDS
        count, left = 0, [""]
        while left:
            above = left.pop()
            try:
                for path, seen in self._entries(above):
                    if why := self._judged(path, seen):
                        self._problem(f"{path[:200]!r}: {why}")
                    elif stat.S_ISDIR(seen.st_mode):
                        left.append(path)
                    count += 1
                    if count > MOST_ENTRIES or len(self.files) + len(self.links) > MOST_FILES:
                        return self._walked(f"more than {MOST_FILES} files; combine them into archives")
                    if time.monotonic() > deadline:
                        return self._walked(f"too many files to list within {SECONDS:.0f} s")
            except OSError as problem:
                self._problem(f"{above!r} {problem.strerror}")
        return self._walked()

    def _walked(self, *stopped: str) -> Walked:
        return Walked(sorted(self.files), sorted(self.links), [*stopped, *self.problems], self.more)

    def _problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)
        else:
            self.more += 1

    def _entries(self, above: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the entries of a folder one by one: other users may have filled it with millions."""
        opened = files.folder(above, within=self.folder) if above else nullcontext(self.folder)
        with opened as handle, os.scandir(handle) as entries:
            for entry in entries:
                path = f"{above}/{entry.name}" if above else entry.name
                if path != STORE:
                    yield path, entry.stat(follow_symlinks=False)

    def _judged(self, path: str, seen: os.stat_result) -> str:
        """Add an entry, or return the reason why the entry cannot be copied."""
        why = manifest.unusable(path)
        if why:
            return why
        if self.owner is not None and seen.st_uid != self.owner:
            return f"owner is {files.user_name(seen.st_uid)}, but the folder's owner is {files.user_name(self.owner)}"
        if stat.S_ISLNK(seen.st_mode):
            target = self._target(path)
            if not stays_inside(path, target):
                return f"link to {target[:200]!r}; only links to targets in the same folder are copied"
            self.links.append((path, target))
        elif stat.S_ISREG(seen.st_mode):
            if seen.st_size > MOST_FILE:
                return f"larger than {MOST_FILE // 10**9} GB; split it"
            self.files.append((path, bool(seen.st_mode & 0o111), seen.st_size))
        elif not stat.S_ISDIR(seen.st_mode):
            return "not a file, link or folder"
        return ""

    def _target(self, path: str) -> str:
        above, _, name = path.rpartition("/")
        try:
            if not above:
                return os.readlink(name, dir_fd=self.folder)
            with files.folder(above, within=self.folder) as handle:
                return os.readlink(name, dir_fd=handle)
        except OSError:
            return ""


def stays_inside(path: str, target: str) -> bool:
    """Return whether a link points into its own folder. The target is accepted only if it contains .. only at its
    beginning, so that other links in the path cannot change the result."""
    parts = target.split("/")
    up = 0
    while parts[up : up + 1] == [".."]:
        up += 1
    below = parts[up:]
    usable = not manifest.unusable("/".join(below)) if below else up > 0
    return usable and up <= path.count("/") and len(target.encode(errors="replace")) <= manifest.MOST_PATH


def walk(folder: int, owner: int | None = None) -> Walked:
    return Walk(folder, owner).run()


def read(folder: int, walked: Walked, memory: Remembered, owner: int | None = None) -> list[ManifestFile]:
    """Return the files with their digests. Raises UnsafePathError for a changed file."""
    found = []
    for path, executable, size in walked.files:
        with files.opened(path, within=folder, owner=owner) as handle:
            sha256, seen = digest(handle, path, memory)
        if seen.st_size != size:
            raise files.UnsafePathError(errno.EAGAIN, "changed while it was read", path)
        found.append(ManifestFile(path, executable, size, sha256))
    return found


def digest(handle: int, path: str, memory: Remembered, *, again: bool = False) -> tuple[str, os.stat_result]:
    """Return the digest of an open file, from the cache if possible. Raises UnsafePathError if the file changes during
    reading."""
    began, seen = time.time(), os.fstat(handle)
    known = None if again else memory.get(path, seen)
    if known:
        return known, seen
    told = hashlib.sha256()
    left = seen.st_size
    while left > 0 and (chunk := os.read(handle, min(left, files.CHUNK))):
        told.update(chunk)
        left -= len(chunk)
    after = os.fstat(handle)
    if (after.st_size, after.st_mtime_ns, after.st_ctime_ns) != (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns):
        raise files.UnsafePathError(errno.EAGAIN, "changed while it was read", path)
    memory.put(path, seen, told.hexdigest(), began)
    return told.hexdigest(), seen
