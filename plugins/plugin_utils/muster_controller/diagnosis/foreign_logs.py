"""ForeignLogs that Muster did not make, read from a file, a folder or a pattern that the user names.

Whoever writes in a folder of logs may put a link, a FIFO or an endless file there. What is named may be a link itself;
below it, no link is followed, and only regular files are read. The rest is left out, and reported by name.
"""

from __future__ import annotations

import os
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from muster.launch.plan import PlanError
from muster.verdict.printable import printable
from muster.verdict.words import few
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDINGS = (".log", ".out", ".err", ".txt")  # of the files of a folder; a file that is named may have any
MOST_SEEN = 100_000  # names in a folder and the folders below it
MOST_FILES = 2000
MOST_BYTES = 64_000_000  # of all of them together
LONGEST = 4_000_000  # of one of them, the last


class ForeignLogs(NamedTuple):
    """texts: the ends of the logs, by their paths. left_out: sentences on files that were not read."""

    texts: dict[str, str]
    left_out: tuple[str, ...] = ()


def read_logs(where: str) -> ForeignLogs:
    """Raises PlanError."""
    path = Path(where).expanduser()
    if path.is_file():
        try:
            return ForeignLogs({str(path): _end(str(path), LONGEST, links=True)})
        except OSError as problem:
            raise PlanError([f"{where} cannot be read ({problem.strerror})."]) from None
    if path.is_dir():
        folder, found = path, sorted(_below(path))
    else:
        # A pattern: the folder before its first wildcard, and the rest of it.
        plain = list(takewhile(lambda part: not set(part) & set("*?["), path.parts[:-1]))
        folder = Path(*plain)
        matches = islice(folder.glob(str(Path(*path.parts[len(plain) :]))), MOST_SEEN)
        found = sorted(str(one.relative_to(folder)) for one in matches if one.is_symlink() or not one.is_dir())
    if len(found) > MOST_FILES:
        raise PlanError([f"There are {len(found)} files at {where}; no more than {MOST_FILES} are read. Name fewer."])
    logs = _read(folder, found) if found else ForeignLogs({})
    if not logs.texts:
        endings = ", ".join(ENDINGS)
        what = f"There is no log at {where}: name a file, a folder with files {endings}, or a pattern."
        raise PlanError([what, *([f"Left out: {few(logs.left_out, '; ')}."] if logs.left_out else [])])
    return logs


def _below(folder: Path) -> Iterator[str]:
    """The paths below a folder that are read as logs, and links to folders, which are not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > MOST_SEEN:
            raise PlanError([f"There are more than {MOST_SEEN} files and folders in {folder}. Name a part of it."])
        here = Path(place)
        yield from (str((here / name).relative_to(folder)) for name in folders if (here / name).is_symlink())
        yield from (str((here / name).relative_to(folder)) for name in names if name.endswith(ENDINGS))


def _read(folder: Path, found: list[str]) -> ForeignLogs:
    each = min(LONGEST, MOST_BYTES // len(found))
    texts: dict[str, str] = {}
    left_out = []
    with files.folder(str(folder), links=True) as handle:
        for name in found:
            try:
                texts[str(folder / name)] = _end(name, each, within=handle)
            except files.UnsafePathError as problem:
                left_out.append(printable(f"{folder / name} {problem.strerror}"))
            except OSError as problem:
                left_out.append(printable(f"{folder / name} cannot be read ({problem.strerror})"))
    return ForeignLogs(texts, tuple(left_out))


def _end(path: str, most: int, *, within: int | None = None, links: bool = False) -> str:
    return files.part(path, -most, most, within=within, links=links).decode("utf-8", "replace")
