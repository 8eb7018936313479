"""Reads logs that Muster did not write, from a file, a folder or a glob pattern given by the user.

A log folder can contain links, FIFOs or endless files. The given path itself can be a link. Below that path, links are
not followed and only regular files are read. Other files are skipped and reported by name.
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

ENDINGS = (".log", ".out", ".err", ".txt")  # of files in a folder; a file given by name may have any
MOST_SEEN = 100_000  # names in a folder and the folders below it
MOST_FILES = 2000
MOST_BYTES = 64_000_000  # of all files together
LONGEST = 4_000_000  # last bytes of one file


class ForeignLogs(NamedTuple):
    """Logs read from files. texts: the last part of each log, by path. left_out: the files that were not read, with the
    reasons."""

    texts: dict[str, str]
    left_out: tuple[str, ...] = ()


def read_logs(where: str) -> ForeignLogs:
    """Read the logs at a path or glob pattern. Raises PlanError."""
    path = Path(where).expanduser()
    if path.is_file():
        try:
            return ForeignLogs({str(path): _end(str(path), LONGEST, links=True)})
        except OSError as problem:
            raise PlanError([f"{where} cannot be read ({problem.strerror})."]) from None
    if path.is_dir():
        folder, found = path, sorted(_below(path))
    else:
        # Split a pattern into the folder before its first wildcard, and the rest.
        plain = list(takewhile(lambda part: not set(part) & set("*?["), path.parts[:-1]))
        folder = Path(*plain)
        matches = islice(folder.glob(str(Path(*path.parts[len(plain) :]))), MOST_SEEN)
        found = sorted(str(one.relative_to(folder)) for one in matches if one.is_symlink() or not one.is_dir())
    if len(found) > MOST_FILES:
        raise PlanError([f"{where} has {len(found)} files; at most {MOST_FILES} can be read. Select fewer files."])
    logs = _read(folder, found) if found else ForeignLogs({})
    if not logs.texts:
        endings = ", ".join(ENDINGS)
        what = f"No log found at {where}. Specify a file, a folder that contains {endings} files, or a glob pattern."
        raise PlanError([what, *([f"Skipped: {few(logs.left_out, '; ')}."] if logs.left_out else [])])
    return logs


def _below(folder: Path) -> Iterator[str]:
    """Yield the paths of the logs below a folder. Links to folders are yielded, but not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > MOST_SEEN:
            raise PlanError([f"{folder} has more than {MOST_SEEN} files and folders. Specify a folder below it."])
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
