"""Reads logs that Muster did not write, from a file, a folder, a glob pattern or standard input.

A log folder can contain links, FIFOs or endless files. The given path itself can be a link. Below that path, links are
not followed and only regular files are read. Other files are skipped and reported by name. Of a large log, the
beginning and the end are read.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import sys
import zlib
from collections import deque
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.launch.plan import PlanError
from muster.verdict.printable import printable
from muster.verdict.words import few, gigabytes
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedIOBase

# Names of logs in a folder, rotated and compressed ones included; a file given by name may have any.
LOG = re.compile(
    r"(?P<base>[^.]+|.*\.(?:log|out|err|txt|jsonl?|stdout|stderr|[oe]\d+))"
    r"(?:[.-](?P<number>\d{1,8}))?(?P<packed>\.gz)?"
)
ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
MOST_SEEN = 100_000  # names in a folder and the folders below it
MOST_FILES = 2000
MOST_BYTES = 64_000_000  # of all files together
MOST_STREAMED = 1_000_000_000  # bytes of a compressed file or of standard input, which must be read from the beginning
LONGEST = 4_000_000  # bytes of one file, of which a quarter is its beginning
CHUNK = 1 << 20


class ForeignLogs(NamedTuple):
    """Logs read from files. texts: the beginning and the end of each log, by path. left_out: the files and parts of
    files that were not read, with the reasons."""

    texts: dict[str, str]
    left_out: tuple[str, ...] = ()


class LogParts(NamedTuple):
    """The bytes that were read of a log. size: of the whole log."""

    first: bytes
    last: bytes
    size: int

    @property
    def is_cut(self) -> bool:
        return self.size > len(self.first) + len(self.last)

    @property
    def text(self) -> str:
        """Return the text. The last part begins with a whole line."""
        encoding = next((name for mark, name in ENCODINGS.items() if self.first.startswith(mark)), "utf-8")
        if self.is_cut:
            end = self.last[(self.size - len(self.last)) % 2 :].decode(encoding, "replace")
            text = f"{self.first.decode(encoding, 'replace')}\n{end.partition(chr(10))[2] or end}"
        else:
            text = (self.first + self.last).decode(encoding, "replace")
        return text.removeprefix("\ufeff")


def read_standard_input() -> ForeignLogs:
    stream: Any = sys.stdin.buffer
    return _logs_of({"standard input": _parts(stream, LONGEST)})


def read_logs(where: str) -> ForeignLogs:
    """Read the logs at a path or glob pattern. Raises PlanError."""
    path = Path(where).expanduser()
    if path.is_file():
        try:
            return _logs_of({str(path): _read(str(path), LONGEST, links=True)})
        except OSError as problem:
            raise PlanError([f"{where} cannot be read ({problem.strerror or problem})."]) from None
    others: list[str] = []
    if path.is_dir():
        folder, found = path, sorted(_below(path, others), key=_by_age)
    else:
        # Split a pattern into the folder before its first wildcard, and the rest.
        plain = list(takewhile(lambda part: not set(part) & set("*?["), path.parts[:-1]))
        folder = Path(*plain)
        matches = islice(folder.glob(str(Path(*path.parts[len(plain) :]))), MOST_SEEN)
        paths = (str(one.relative_to(folder)) for one in matches if one.is_symlink() or not one.is_dir())
        found = sorted(paths, key=_by_age)
    if len(found) > MOST_FILES:
        raise PlanError([f"{where} has {len(found)} files; at most {MOST_FILES} can be read. Select fewer files."])
    logs = _read_all(folder, found) if found else ForeignLogs({})
    if not logs.texts:
        what = "Specify a file, a folder that contains .log, .out, .err, .txt or .json files, or a glob pattern."
        there = [f"Other files there: {few(sorted(map(printable, others)))}."] if others else []
        skipped = [f"Skipped: {few(logs.left_out, '; ')}."] if logs.left_out else []
        raise PlanError([f"No log found at {where}. {what}", *there, *skipped])
    return logs


def _below(folder: Path, others: list[str]) -> Iterator[str]:
    """Yield the paths of the logs below a folder, and add other files to `others`. Links to folders are yielded, but
    not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > MOST_SEEN:
            raise PlanError([f"{folder} has more than {MOST_SEEN} files and folders. Specify a folder below it."])
        here = Path(place)
        yield from (str((here / name).relative_to(folder)) for name in folders if (here / name).is_symlink())
        yield from (str((here / name).relative_to(folder)) for name in names if LOG.fullmatch(name))
        others.extend(name for name in names if not LOG.fullmatch(name))


def _by_age(path: str) -> tuple[str, int]:
    """Sort rotated logs before the log that continues them: x.log.2, x.log.1, x.log; x.log-20260101, x.log."""
    name = LOG.fullmatch(path)
    number = name["number"] if name else None
    age = 10**8 if number is None else int(number) if len(number) == len("20260101") else -int(number)
    return (name["base"] if name else path, age)


def _read_all(folder: Path, found: list[str]) -> ForeignLogs:
    each = min(LONGEST, MOST_BYTES // len(found))
    parts: dict[str, LogParts] = {}
    left_out = []
    with files.folder(str(folder), links=True) as handle:
        for name in found:
            try:
                one = _read(name, each, within=handle)
                if b"\0" in one.first and not one.first.startswith(tuple(ENCODINGS)):
                    left_out.append(printable(f"{folder / name} is not a text file"))
                else:
                    parts[str(folder / name)] = one
            except files.UnsafePathError as problem:
                left_out.append(printable(f"{folder / name} {problem.strerror}"))
            except OSError as problem:
                left_out.append(printable(f"{folder / name} cannot be read ({problem.strerror or problem})"))
    return _logs_of(parts, left_out)


def _logs_of(parts: dict[str, LogParts], left_out: Sequence[str] = ()) -> ForeignLogs:
    cut = [path for path, one in parts.items() if one.is_cut]
    said = []
    if cut:
        first = parts[cut[0]]
        of = f"{gigabytes(len(first.first))} and the last {gigabytes(len(first.last))} of {gigabytes(first.size)}"
        said = [f"the middle of {few([printable(path) for path in cut])} (only the first {of} were read)"]
    return ForeignLogs({path: one.text for path, one in parts.items()}, (*said, *left_out))


def _read(path: str, most: int, *, within: int | None = None, links: bool = False) -> LogParts:
    with files.opened(path, within=within, links=links) as handle, open(handle, "rb", closefd=False) as stream:
        if path.endswith(".gz"):
            return _parts(gzip.GzipFile(fileobj=stream), most)
        return _parts(stream, most, os.fstat(handle).st_size)


def _parts(stream: BufferedIOBase, most: int, size: int = 0) -> LogParts:
    """Read the beginning and the end. size: of a file that can be read from any place."""
    room, first, last, seen, held = most - most // 4, b"", deque[bytes](), 0, 0
    with suppress(EOFError, zlib.error):  # a truncated file: what was read so far
        while seen < max(size, MOST_STREAMED) and (chunk := stream.read1(CHUNK)):
            seen += len(chunk)
            if len(first) < most // 4:
                first, chunk = (first + chunk)[: most // 4], (first + chunk)[most // 4 :]
                if size - seen > room:
                    seen, chunk = stream.seek(size - room), b""
            last.append(chunk)
            held += len(chunk)
            while held - len(last[0]) >= room:
                held -= len(last.popleft())
    return LogParts(first, b"".join(last)[-room:], max(seen, size))
