"""Compute digests of PyTorch environments: one for each entry in site-packages, from file sizes and times only.

A changed file has a different time or size, unless someone reset the time. Reading all contents (gigabytes) would take
minutes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING, Any

from ..tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

SECONDS = 30.0
MOST_FILES = 500_000
MOST_PARTS = 2000
DEPTH = 40
# Python writes these when modules are imported.
CACHE = "__pycache__"
DIGITS = 12


class UnreadableEnvironmentError(Exception):
    """Raised if a part cannot be inspected; the message gives the reason."""


def parts(link: str) -> Json:
    """Return {name, parts}: the link's target, and a digest for each entry in site-packages. name is "" if there is no
    target."""
    folder = site_packages(link)
    if not folder:
        return {"name": "", "parts": {}}
    deadline = time.monotonic() + SECONDS
    found: dict[str, str] = {}
    left = MOST_FILES
    for part in names(folder):
        digest = hashlib.sha256()
        for path, seen in walked(f"{folder}/{part}", deadline):
            digest.update(
                f"{path[len(folder) :]} {seen.st_size} {seen.st_mtime_ns} {seen.st_mode:o}\n".encode("utf-8", "replace")
            )
            left -= 1
            if left < 0:
                raise UnreadableEnvironmentError(f"{folder} has more than {MOST_FILES} files")
        found[part] = digest.hexdigest()[:DIGITS]
    return {"name": os.path.basename(os.path.realpath(link)), "parts": found}


def changed_last(link: str, wanted: list[str]) -> dict[str, Json]:
    """Return the most recently changed file of each requested part: {at, path, owner}. Omit missing parts."""
    folder = site_packages(link)
    deadline = time.monotonic() + SECONDS
    found: dict[str, Json] = {}
    for part in wanted if folder else ():
        if "/" in part or part in ("", ".", ".."):
            continue
        newest = max(walked(f"{folder}/{part}", deadline), key=lambda one: one[1].st_ctime, default=None)
        if newest:
            path, seen = newest
            found[part] = {"at": seen.st_ctime, "path": path, "owner": files.user_name(seen.st_uid)}
    if folder and found.keys() != set(wanted):
        seen = os.lstat(folder)
        found[""] = {"at": seen.st_ctime, "path": folder, "owner": files.user_name(seen.st_uid)}
    return found


def condemn(link: str, changed: list[str]) -> list[str]:
    """Make the step pytorch detect that the environment was changed: remove pip's or conda's record of one package,
    preferably of a changed package. Return the removed path. Running processes are not affected."""
    conda = f"{os.path.realpath(link)}/conda-meta"
    folder = conda if os.path.isdir(conda) else site_packages(link)
    ending, record = (".json", "") if folder == conda else (".dist-info", "/RECORD")
    there = [name for name in names(folder) if name.endswith(ending)] if folder else []
    wanted = {name.partition("-")[0].removesuffix(".py").lower() for name in changed}
    of_changed = [name for name in there if name.partition("-")[0].lower() in wanted]
    for name in (of_changed or there)[:1]:
        path = f"{folder}/{name}{record}"
        return [path] if files.remove(path) else []
    return []


def by_environment(request: Json, wanted: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (prefix, link, parts) for each environment. The names of parts in named environments begin with the
    prefix."""
    links = {"": request["environment"], **{f"{name}/": link for name, link in request["named"].items()}}
    for begin, link in links.items():
        own = [part[len(begin) :] for part in wanted if part.rpartition("/")[0] == begin.rstrip("/")]
        if own:
            yield begin, link, own


def site_packages(link: str) -> str:
    """Return the path of the site-packages folder; "" if the environment does not exist."""
    library = f"{os.path.realpath(link)}/lib"
    try:
        versions = [name for name in files.names(library) if name.startswith("python3")]
    except OSError:
        return ""
    return f"{library}/{versions[0]}/site-packages" if versions else ""


def names(folder: str) -> list[str]:
    try:
        found = [name for name in files.names(folder) if name != CACHE]
    except OSError as error:
        raise UnreadableEnvironmentError(f"{folder}: {error.strerror}") from None
    if len(found) > MOST_PARTS:
        raise UnreadableEnvironmentError(f"{folder} has more than {MOST_PARTS} parts")
    return found


def walked(path: str, deadline: float, depth: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file below the path, or the file itself, in name order, without following links."""
    if time.monotonic() > deadline:
        raise UnreadableEnvironmentError(f"the environment has too many files to inspect within {SECONDS:.0f} s")
    try:
        seen = os.lstat(path)
        if not stat.S_ISDIR(seen.st_mode):
            yield path, seen
            return
        below = sorted(entry.name for entry in os.scandir(path) if entry.name != CACHE)
    except OSError:
        return  # removed in the meantime
    for name in below if depth < DEPTH else ():
        yield from walked(f"{path}/{name}", deadline, depth + 1)
