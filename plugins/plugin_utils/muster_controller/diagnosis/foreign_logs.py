"""Logs that Muster did not make, read from where somebody says: a file, a folder, or a pattern."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from muster.launch.plan import PlanError

from .known_launch import read_end

ENDINGS = (".log", ".out", ".err", ".txt")  # of the files of a folder; a file that is named may have any
MOST_FILES = 2000
MOST_BYTES = 64_000_000  # of all of them together
LONGEST = 4_000_000  # of one of them, the last


def texts_of(where: str) -> dict[str, str]:
    """Their ends, by their paths. Raises PlanError."""
    path = Path(where).expanduser()
    if path.is_dir():
        found = sorted(one for one in path.rglob("*") if one.suffix in ENDINGS and one.is_file())
    elif path.is_file():
        found = [path]
    else:
        # A pattern: the folder before its first wildcard, and the rest of it.
        plain = list(takewhile(lambda part: not set(part) & set("*?["), path.parts[:-1]))
        found = sorted(one for one in Path(*plain).glob(str(Path(*path.parts[len(plain) :]))) if one.is_file())
    if not found:
        endings = ", ".join(ENDINGS)
        raise PlanError([f"There is no log at {where}: name a file, a folder with files {endings}, or a pattern."])
    if len(found) > MOST_FILES:
        raise PlanError([f"There are {len(found)} files at {where}; no more than {MOST_FILES} are read. Name fewer."])
    each = min(LONGEST, MOST_BYTES // len(found))
    return {str(one): read_end(one, each) for one in found}
