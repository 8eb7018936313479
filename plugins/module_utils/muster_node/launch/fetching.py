"""List and read files in a launch's working directory for the controller.

This code runs as the launch's user, who owns the files. It follows no links, reads only regular files, and limits every
step. Shell patterns apply to each part of a path. `**` matches any number of folders, and a matching folder includes
its whole content.
"""

from __future__ import annotations

import base64
import os
import stat
import time
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.as_user import SilentError
from . import written

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

SECONDS = 30.0
MOST_SEEN = 200_000  # names that are checked
MOST_FILES = 5000
MOST_LEFT = 100  # excluded files that are named
MOST_PATH = 1000  # characters
DEPTH = 32
MOST_PART = 12 << 20  # bytes in one answer
ANY = "**"

# The position of a path in each pattern: (pattern, part of it).
Places = set[tuple[int, int]]


class Patterns:
    def __init__(self, patterns: list[str]) -> None:
        self.parts = [[part for part in pattern.split("/") if part not in {"", "."}] for pattern in patterns]

    def begin(self) -> Places:
        return self._with_any({(number, 0) for number in range(len(self.parts))})

    def step(self, places: Places, name: str) -> Places:
        """Return the positions in the patterns after this name; no positions if no pattern matches."""
        found = set()
        for number, at in places:
            parts = self.parts[number]
            if at == len(parts) or parts[at] == ANY:
                found.add((number, at))
            elif fnmatchcase(name, parts[at]):
                found.add((number, at + 1))
        return self._with_any(found)

    def has(self, places: Places) -> bool:
        return any(at == len(self.parts[number]) for number, at in places)

    def _with_any(self, places: Places) -> Places:
        """Add the positions after `**`, because `**` also matches zero folders."""
        more = {
            (number, at + 1) for number, at in places if at < len(self.parts[number]) and self.parts[number][at] == ANY
        }
        return places | self._with_any(more) if more - places else places


def fetchable(request: Json) -> Json:
    """Return {files: [{path, size, changed}], left: [{path, why}], why}: matching files, excluded files, and the reason
    if the list is incomplete. request: {launch_id, run_dir, folder, patterns}"""
    return asked(request, lambda: _listed(request["folder"], Patterns(request["patterns"])), {"files": [], "left": []})


def fetched(request: Json) -> Json:
    """Return {parts: [{path, offset, data (base64), size, changed}], why}: the contents of these files, at most `limit`
    bytes.

    request: {launch_id, run_dir, folder, wanted: [{path, offset}], limit}
    """
    limit = min(request["limit"], MOST_PART)
    return asked(request, lambda: _parts(request["folder"], request["wanted"], limit), {"parts": []})


def asked(request: Json, work: Any, nothing: Json) -> Json:
    try:
        found: Json = written.in_its_name(request, work, SECONDS + written.SECONDS)
    except SilentError as silent:
        return {**nothing, "why": str(silent.strerror)}
    return found


def _listed(folder: str, patterns: Patterns) -> Json:
    found: list[Json] = []
    left: list[Json] = []
    why = ""
    try:
        for path, seen in _walk(folder, patterns):
            refused = _refused(path, seen)
            if not refused and len(found) == MOST_FILES:
                why = f"more than {MOST_FILES} files match"
                break
            if refused and len(left) < MOST_LEFT:
                left.append({"path": ascii(path)[1:-1][:MOST_PATH], "why": refused})
            elif not refused and seen is not None:
                found.append({"path": path, "size": seen.st_size, "changed": seen.st_mtime_ns})
    except OSError as problem:
        why = problem.strerror or str(problem)
    return {"files": sorted(found, key=lambda one: str(one["path"])), "left": left, "why": why}


def _walk(folder: str, patterns: Patterns) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield every matching path that is not a folder. Raises OSError if the folder is not readable or a limit is
    exceeded."""
    deadline, seen = time.monotonic() + SECONDS, 0
    with files.folder(folder, links=True) as top:
        todo = [("", patterns.begin())]
        while todo:
            above, places = todo.pop()
            try:
                entries = files.names(above, within=top) if above else sorted(os.listdir(top))
            except OSError as problem:
                if not above:
                    raise
                yield f"{above}: {problem.strerror}", None
                continue
            for name in entries:
                seen += 1
                if seen > MOST_SEEN or time.monotonic() > deadline:
                    raise files.UnsafePathError(0, f"only {seen - 1} names of the working directory were checked")
                path = f"{above}/{name}" if above else name
                reached = patterns.step(places, name)
                if not reached:
                    continue
                with suppress(OSError):  # removed in the meantime
                    status = os.stat(path, dir_fd=top, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        if patterns.has(reached):
                            yield path, status
                    elif path.count("/") < DEPTH:
                        todo.append((path, reached))


def _refused(path: str, seen: os.stat_result | None) -> str:
    if seen is None:
        return "cannot be read"
    if stat.S_ISLNK(seen.st_mode):
        return "is a link"
    if not stat.S_ISREG(seen.st_mode):
        return "is not a regular file"
    if len(path) > MOST_PATH:
        return "has a name that is too long"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not valid text"
    return "" if path.isprintable() else "has control characters in its name"


def _parts(folder: str, wanted: list[Json], limit: int) -> Json:
    parts: list[Json] = []
    with files.folder(folder, links=True) as top:
        for one in wanted:
            try:
                with files.opened(one["path"], within=top) as handle:
                    seen = os.fstat(handle)
                    data = os.pread(handle, min(limit, max(0, seen.st_size - one["offset"])), one["offset"])
                    changed = seen.st_mtime_ns
            except OSError as problem:
                parts.append({"path": one["path"], "why": problem.strerror or str(problem)})
                continue
            text = base64.b64encode(data).decode()
            known = {"path": one["path"], "offset": one["offset"], "size": seen.st_size, "changed": changed}
            parts.append({**known, "data": text})
            limit -= len(data)
            if limit <= 0:
                break
    return {"parts": parts, "why": ""}
