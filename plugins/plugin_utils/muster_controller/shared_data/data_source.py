"""The listing of a data folder on the controller or on a node, and its parts as content for Distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile
from muster_node.shared_data import listing
from muster_node.shared_data.remembered import Remembered
from muster_node.tools import files
from muster_node.tools.transfer import decode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class SourceError(Exception):
    """Why the folder cannot be copied, as sentences."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = list(problems)


@dataclass(frozen=True)
class DataListing:
    """files: the files, sorted by path. links: pairs [path, target]."""

    files: list[ManifestFile]
    links: list[tuple[str, str]]

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    @property
    def sizes(self) -> list[int]:
        return [file.size for file in self.files]


@dataclass(frozen=True)
class DataPart:
    """Content for Distribution. folder: the source folder on the controller, or "" if the source is on a node."""

    files: Sequence[ManifestFile]
    folder: str

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes:
        if not self.folder:
            raise LookupError(f"the controller does not have {file.path}")
        with files.folder(self.folder, links=True) as folder:
            return files.part(file.path, begin, most, within=folder)


def on_controller(path: str, kept: Path, *, remember: bool) -> DataListing:
    """Return the listing of a folder on the controller. Raises SourceError."""
    try:
        with files.folder(path, links=True) as folder:
            found = listing.walk(folder)
            _refuse(path, found.problems, found.more, len(found.files) + len(found.links))
            memory = Remembered(str(kept), path)
            listed = listing.read(folder, found, memory)
            if remember:
                memory.save()
            return DataListing(listed, found.links)
    except OSError as problem:
        place = problem.filename if problem.filename and problem.filename != path else ""
        where = f"{path}/{place}" if place else path
        raise SourceError([f"{where}: {problem.strerror or problem}"]) from None


def measured(path: str, data: Any) -> int:
    """Return the size in bytes that a node reported. Raises SourceError."""
    size, count, more = (data.get(name) for name in ("bytes", "files", "more"))
    problems = data.get("problems")
    if not isinstance(problems, list) or not all(isinstance(one, int) for one in (size, count, more)):
        raise SourceError(["invalid answer"])
    _refuse(path, [str(one)[:500] for one in problems[: listing.MOST_PROBLEMS]], more, count or 1)
    return min(int(size), listing.MOST_FILES * listing.MOST_FILE)


def from_node(text: Any) -> DataListing:
    """Return the listing that a node sent, which is untrusted input. Raises SourceError."""
    try:
        entries, links = decode(text)
        found = [ManifestFile(*each) for each in entries]
        pairs = [(str(path), str(target)) for path, target in links]
        _judge(found, pairs)
    except (ValueError, TypeError, RecursionError) as problem:
        raise SourceError([f"invalid file list: {problem}"]) from None
    return DataListing(found, pairs)


def _judge(found: list[ManifestFile], links: list[tuple[str, str]]) -> None:
    for begin in range(0, len(found), manifest.MOST_FILES):
        part = found[begin : begin + manifest.MOST_FILES]
        if manifest.parse(manifest.render(part)) != part:
            raise ValueError("entries are not sorted")
    if any(manifest.unusable(path) or not listing.stays_inside(path, target) for path, target in links):
        raise ValueError("a link points outside the folder")
    if not found and not links:
        raise ValueError("the folder is empty")


def _refuse(path: str, problems: Sequence[str], more: int, count: int) -> None:
    left = [f"and {more} more"] if more else []
    if problems:
        raise SourceError([*(f"{path}: {each}" for each in problems), *left])
    if not count:
        raise SourceError([f"{path}: the folder is empty"])
