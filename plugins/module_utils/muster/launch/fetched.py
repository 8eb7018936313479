"""Select the files in a launch's working folders that are fetched within the size limit, and report the others.

File names and sizes come from the training user, and the names become paths on the controller. Unsafe paths are
excluded and reported.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.words import few, gigabytes, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding

FETCHED = Check(
    "launch.fetched",
    seen="sandbox",
    reads="the files that match launch_fetch in the working folders of the launch",
    fires="a matching file could not be fetched or exceeds launch_fetch_max_mb (warn)",
    fix="Copy the file from the working folder, which is kept on the node",
)
MOST_PATTERNS = 50
MOST_ANY = 3  # "**" in one pattern
MOST_FILES = 5000  # of one node
MOST_LEFT = 100
MOST_PATH = 1000
MOST_NAME = 255
MOST_SIZE = 2**62

CHECKS = (FETCHED,)


class FetchedFile(NamedTuple):
    """A file on a node. size: bytes. changed: modification time in nanoseconds, on the node's clock."""

    path: str
    size: int
    changed: int


class Part(NamedTuple):
    """A part of a file.

    why: why data is missing, or "". size, changed: the present size and modification time of the file.
    """

    path: str
    offset: int = 0
    data: bytes = b""
    size: int = 0
    changed: int = 0
    why: str = ""


@dataclass
class Listing:
    """The files of one node.

    left: reasons for excluded files, by path. why: why the list is missing or incomplete; "" if it is complete.
    """

    files: list[FetchedFile] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass
class Fetched:
    """The fetched files of each node as (path, bytes).

    left: why other files were not fetched. folder: the target folder.
    """

    folder: str
    came: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    left: dict[str, dict[str, str]] = field(default_factory=dict)

    def leave(self, node: str, path: str, why: str) -> None:
        self.left.setdefault(node, {})[path] = why


def problems_of(patterns: Sequence[str]) -> list[str]:
    """Return the problems of launch_fetch as sentences."""
    problems = [f"launch_fetch has more than {MOST_PATTERNS} patterns."] if len(patterns) > MOST_PATTERNS else []
    for pattern in patterns[:MOST_PATTERNS]:
        parts = pattern.split("/")
        if not pattern.strip("/. ") or pattern.startswith("/") or ".." in parts or "\0" in pattern:
            problems.append(f"launch_fetch: {pattern!r} is not a relative pattern such as results/*.json or **/*.pt.")
        elif parts.count("**") > MOST_ANY or len(pattern) > MOST_PATH:
            problems.append(f"launch_fetch: {pattern[:60]!r} is too long, or contains '**' more than {MOST_ANY} times.")
    return problems


# ---------------------------------------------------------------- what nodes answer


def listing_of(data: Mapping[str, Any]) -> Listing:
    """Return the valid entries in a node's list of files."""
    listing = Listing(why=str(data.get("why") or "")[:MOST_PATH])
    given = data.get("files")
    for one in given[:MOST_FILES] if isinstance(given, list) else []:
        path, size, changed = (one.get(name) for name in FetchedFile._fields) if isinstance(one, dict) else (None, 0, 0)
        if not isinstance(path, str) or size is None or changed is None or not (_is_size(size) and _is_size(changed)):
            continue
        why = unsafe(path)
        if why:
            listing.left[ascii(path)[1:-1][:MOST_PATH]] = why
        else:
            listing.files.append(FetchedFile(path, size, changed))
    refused = data.get("left")
    for one in refused[:MOST_LEFT] if isinstance(refused, list) else []:
        if isinstance(one, dict):
            listing.left[str(one.get("path"))[:MOST_PATH]] = str(one.get("why"))[:MOST_NAME]
    return listing


def parts_of(data: Mapping[str, Any], wanted: Mapping[str, int]) -> list[Part]:
    """Return the requested parts of these files, from these offsets. Any other data in the answer is ignored."""
    found = []
    given = data.get("parts")
    for one in given if isinstance(given, list) else []:
        path = one.get("path") if isinstance(one, dict) else None
        if not isinstance(path, str) or path not in wanted:
            continue
        if one.get("why"):
            found.append(Part(path, why=str(one["why"])[:MOST_NAME]))
            continue
        numbers = [one.get(name) for name in ("offset", "size", "changed")]
        try:
            data_ = base64.b64decode(one["data"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error):
            continue
        if all(map(_is_size, numbers)) and numbers[0] == wanted[path]:
            found.append(Part(path, wanted[path], data_, numbers[1], numbers[2]))
    return found


def unsafe(path: str) -> str:
    """Return why a path is not allowed on the controller; "" if it is allowed."""
    parts = path.split("/")
    if not path or len(path) > MOST_PATH or any(part in ("", ".", "..") for part in parts):
        return "is not a path within the working folder"
    try:
        long = any(len(part.encode()) > MOST_NAME for part in parts)
    except UnicodeEncodeError:
        return "has a name that is not valid text"
    if long:
        return "has a name that is too long"
    return "" if path.isprintable() else "has control characters in its name"


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_SIZE


# ---------------------------------------------------------------- selection


def choose(listings: Mapping[str, Listing], most: int, into: Fetched) -> dict[str, list[FetchedFile]]:
    """Return the files that fit into `most` bytes in total, taken in the order of nodes and names.

    A file that does not fit is skipped; a later, smaller file can still fit.
    """
    taken: dict[str, list[FetchedFile]] = {}
    room = most
    for node, listing in listings.items():
        for path, why in listing.left.items():
            into.leave(node, path, why)
        if listing.why:
            into.leave(node, "", listing.why)
        for file in listing.files:
            if file.size > room:
                into.leave(node, file.path, f"{gigabytes(file.size)} exceed launch_fetch_max_mb")
                continue
            room -= file.size
            taken.setdefault(node, []).append(file)
    return taken


def sentence(fetched: Fetched) -> str:
    """Return one line about the files that were fetched and those that were not."""
    files = [size for came in fetched.came.values() for _, size in came]
    if not files and not fetched.left:
        return "no files fetched: no file in the working folders matches launch_fetch"
    came = f"fetched {plural(len(files), 'file')} ({gigabytes(sum(files))}) into {fetched.folder}"
    left = [f"{node}: {named(path, why)}" for node, paths in fetched.left.items() for path, why in paths.items()]
    return f"{came}; {plural(len(left), 'item')} not fetched: {few(left, '; ')}" if left else came


def named(path: str, why: str) -> str:
    return f"{path}: {why}" if path else why


def findings(fetched: Fetched, work_dirs: Mapping[str, str]) -> list[Finding]:
    """Return one finding for each node with files that were not fetched.

    work_dirs: the folder on each node that still has these files.
    """
    found = []
    for node, left in fetched.left.items():
        names = [named(path, why) for path, why in left.items()]
        text = f"files of launch_fetch were not fetched: {few(names, '; ')}"
        fix = f"Copy them from {work_dirs.get(node, 'the working folder')} on {node}, which is kept"
        found.append(FETCHED.warn(node, text, fix))
    return found
