"""Data that somebody names, on this node: whether it is there, and what makes it the same as elsewhere.

A folder is known by the names and sizes of all that is in it, a small file by its content, a large one by its size.
Looked at in the name of the launch's user, who must be able to read it, and for a limited time.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.as_user import SilentError, as_user

if TYPE_CHECKING:
    import pwd

Json = dict[str, Any]

SECONDS = 12.0  # for all paths together
SPARE = 4.0
MOST_ENTRIES = 200_000  # of one path
MOST_LISTED = 400  # entries that are handed over by name
MOST_READ = 64_000_000  # bytes of a file that is read: a list of digests of ten million files has more
NOTHING: Json = {"kind": "", "count": 0, "bytes": 0, "digest": "", "names": [], "cut": False, "error": ""}


def data_facts(paths: list[str], user: pwd.struct_passwd | None) -> list[Json]:
    """Return {path, kind, count, bytes, digest, names, cut, error} of each; kind: folder, file, or "" with an error.

    cut: there is more than what was counted, or there was no time for it. names: [[name, size], ...] of a small folder.
    """
    if user is None:
        return []
    until = time.monotonic() + SECONDS
    return [{"path": path, **_seen(path, user, max(0.5, until - time.monotonic()))} for path in paths]


def _seen(path: str, user: pwd.struct_passwd, seconds: float) -> Json:
    try:
        seen: Json = as_user(user, lambda: _look(path, time.monotonic() + seconds), seconds=seconds + SPARE)
    except SilentError as silent:
        return {**NOTHING, "cut": True, "error": f"could not be looked at: {silent.strerror}"}
    return seen


def _look(path: str, until: float) -> Json:
    try:
        seen = os.stat(path)
        if stat.S_ISDIR(seen.st_mode):
            return _folder(path, until)
        if not stat.S_ISREG(seen.st_mode):
            return {**NOTHING, "error": "is neither a folder nor a file"}
        return _file(path, until)
    except OSError as problem:
        return {**NOTHING, "error": _said(problem, path)}


def _file(path: str, until: float) -> Json:
    digest = hashlib.sha256()
    with files.opened(path, links=True) as handle:
        size = os.fstat(handle).st_size
        if size <= MOST_READ:
            while chunk := os.read(handle, files.CHUNK):
                digest.update(chunk)
                if time.monotonic() > until:
                    return {**NOTHING, "kind": "file", "count": 1, "bytes": size, "cut": True}
    return {
        **NOTHING,
        "kind": "file",
        "count": 1,
        "bytes": size,
        "digest": digest.hexdigest() if size <= MOST_READ else f"{size} bytes",
    }


def _folder(top: str, until: float) -> Json:
    """Count in an order that is the same everywhere, so that what is cut by number can be compared all the same."""
    digest, names = hashlib.sha256(), list[list[Any]]()
    count = total = 0
    todo = [""]
    while todo:
        inner = todo.pop()
        with os.scandir(f"{top}/{inner}") as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        if not os.access(f"{top}/{inner}", os.X_OK):
            raise PermissionError(13, "may not be entered", f"{top}/{inner}")
        folders = []
        for entry in listed:
            if count >= MOST_ENTRIES or time.monotonic() > until:
                late = time.monotonic() > until
                return {
                    **NOTHING,
                    "kind": "folder",
                    "count": count,
                    "bytes": total,
                    "digest": "" if late else digest.hexdigest(),
                    "cut": True,
                }
            path = f"{inner}/{entry.name}" if inner else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            size = entry.stat().st_size if entry.is_file() else 0
            if not count % 100 and entry.is_file() and not os.access(f"{top}/{path}", os.R_OK):
                raise PermissionError(13, "may not be read", f"{top}/{path}")
            digest.update(os.fsencode(path) + b"\0%d\n" % size)
            count, total = count + 1, total + size
            if count <= MOST_LISTED:
                names.append([os.fsencode(path).decode("utf-8", "replace")[:300], size])
        todo += reversed(folders)
    return {
        **NOTHING,
        "kind": "folder",
        "count": count,
        "bytes": total,
        "digest": digest.hexdigest(),
        "names": names if count <= MOST_LISTED else [],
    }


def _said(problem: OSError, path: str) -> str:
    if isinstance(problem, FileNotFoundError) and problem.filename in {path, f"{path}/"}:
        return "is not there"
    where = "" if problem.filename in {path, f"{path}/"} else f" ({problem.filename})"
    words = {PermissionError: "may not be read", FileNotFoundError: "changes while it is looked at"}
    return f"{words.get(type(problem), problem.strerror or str(problem))}{where}"
