"""Manifests: lists of the files in a folder with their digests. The digest of a manifest identifies the folder's
content."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_FILES = 20_000
MOST_TEXT = 8_000_000  # bytes of a manifest, which is 400 for each file
MOST_PATH = 1024  # bytes
MOST_NAME = 255
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


class ManifestFile(NamedTuple):
    """A file in a manifest. path: relative to the folder. executable: whether the file is executable. size: in
    bytes."""

    path: str
    executable: bool
    size: int
    sha256: str


def render(files: Iterable[ManifestFile]) -> bytes:
    """Return the list as text. Equal lists give identical text on every machine."""
    entries = [[each.path, each.executable, each.size, each.sha256] for each in sorted(files)]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def parse(text: bytes) -> list[ManifestFile]:
    """Return the files in a text from `render`. Raises ValueError for any other text."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"the manifest has more than {MOST_TEXT} bytes")
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("not a manifest") from None
    if not isinstance(entries, list) or len(entries) > MOST_FILES:
        raise ValueError(f"the manifest is not a list of at most {MOST_FILES} files")
    files = [_file(each) for each in entries]
    if text != render(files):
        raise ValueError("not a manifest in canonical form")
    taken = {each.path for each in files}
    folders = {folder for path in taken for folder in above(path)}
    if len(taken) != len(files) or taken & folders:
        raise ValueError("the manifest has two entries for one path")
    return files


def above(path: str) -> list[str]:
    """Return the folders above a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def unusable(path: str) -> str:
    """Return the reason why a path is not allowed in a manifest; "" if it is allowed."""
    if CONTROL.search(path):
        return "the name contains non-printable characters"
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "not a normalized relative path"
    encoded = [len(part.encode()) for part in parts]
    if max(encoded) > MOST_NAME or sum(encoded) + len(parts) > MOST_PATH:
        return "path too long"
    return ""


def _file(entry: Any) -> ManifestFile:
    if not isinstance(entry, list) or [type(part) for part in entry] != [str, bool, int, str]:
        raise ValueError("a manifest entry must be [path, executable, size, sha256]")
    found = ManifestFile(*entry)
    if unusable(found.path) or found.size < 0 or not DIGEST.match(found.sha256):
        raise ValueError(f"invalid manifest entry: {found.path[:100]!r}")
    return found
