"""A folder as a list of its files, each with its digest. The digest of that list is the name of the whole."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_FILES = 20_000
MOST_TEXT = 8_000_000  # bytes of a manifest: with that many files, 400 each
MOST_PATH = 1024  # bytes
MOST_NAME = 255
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


class ManifestFile(NamedTuple):
    """path: within the folder. executable: whether it may be run. size: bytes."""

    path: str
    executable: bool
    size: int
    sha256: str


def render(files: Iterable[ManifestFile]) -> bytes:
    """Return the list as a text that is the same wherever the same files are listed."""
    entries = [[each.path, each.executable, each.size, each.sha256] for each in sorted(files)]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def parse(text: bytes) -> list[ManifestFile]:
    """Return the files. Raises ValueError for anything that `render` did not make of files of one folder."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"a manifest has more than {MOST_TEXT} bytes")
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("it is no manifest") from None
    if not isinstance(entries, list) or len(entries) > MOST_FILES:
        raise ValueError(f"a manifest lists {MOST_FILES} files at most")
    files = [_file(each) for each in entries]
    if text != render(files):
        raise ValueError("it is no manifest as it is written")
    taken = {each.path for each in files}
    folders = {folder for path in taken for folder in above(path)}
    if len(taken) != len(files) or taken & folders:
        raise ValueError("a manifest has two entries for one path")
    return files


def above(path: str) -> list[str]:
    """Return the folders above a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def unusable(path: str) -> str:
    """Return why a path cannot be in a manifest, or nothing."""
    if CONTROL.search(path):
        return "its name holds characters that cannot be shown"
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "it is no path within a folder"
    encoded = [len(part.encode()) for part in parts]
    if max(encoded) > MOST_NAME or sum(encoded) + len(parts) > MOST_PATH:
        return "its path is too long"
    return ""


def _file(entry: Any) -> ManifestFile:
    if not isinstance(entry, list) or [type(part) for part in entry] != [str, bool, int, str]:
        raise ValueError("an entry of a manifest is [path, executable, size, sha256]")
    found = ManifestFile(*entry)
    if unusable(found.path) or found.size < 0 or not DIGEST.match(found.sha256):
        raise ValueError(f"an entry of a manifest cannot be used: {found.path[:100]!r}")
    return found
