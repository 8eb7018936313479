"""What the ranks and torchrun wrote into RUN_ROOT/ID/logs: the parts that are new, and the error files.

All of it is the training user's: only regular files of that user are opened, with no link on the way, and every step
has a limit. A log that had grown beyond its own limit has a hole where its middle was (capping.py).

    agent.log                                     torchrun's own
    torchrun/JOB/attempt_0/LOCAL_RANK/std*.log    its ranks'; error.json beside them
"""

from __future__ import annotations

import codecs
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..tools import files
from . import foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

MOST_PART = 4 << 20  # bytes of all logs in one answer
MOST_ERROR = 1_000_000  # bytes of an error.json
MOST_ERRORS = 4_000_000  # and of all that are sent
MOST_JOBS = 4  # torchrun makes one


@contextmanager
def log_folder(run_dir: str) -> Iterator[tuple[int, int]]:
    """Yield the open folder, and the uid of the training user, whom root gave it to."""
    with files.folder(f"{run_dir}/logs") as handle:
        yield handle, os.fstat(handle).st_uid


def log_files(logs: int) -> list[tuple[str, str]]:
    """[(key, path)] of every log there may be: 'agent', 'LOCAL_RANK/stderr' and 'LOCAL_RANK/stdout' of each rank."""
    folders = rank_folders(logs)
    # stderr of all ranks comes first: a rank that floods its stdout must not keep the reason of another's end back.
    streams = [(stream, rank, path) for stream in ("stderr", "stdout") for rank, path in folders]
    return [("agent", "agent.log"), *((f"{rank}/{stream}", f"{path}/{stream}.log") for stream, rank, path in streams)]


def rank_folders(logs: int) -> list[tuple[int, str]]:
    """[(local rank, path)]; of several under one number, the first."""
    found: dict[int, str] = {}
    for job in names(logs, "torchrun")[:MOST_JOBS]:
        attempt = f"torchrun/{job}/attempt_0"
        for name in names(logs, attempt):
            rank = foreign.number(name)
            if rank is not None and rank < foreign.MOST_RANKS:
                found.setdefault(rank, f"{attempt}/{name}")
    return sorted(found.items())


def names(logs: int, path: str) -> list[str]:
    try:
        return files.names(path, within=logs, most=2 * foreign.MOST_RANKS)
    except OSError:
        return []


def sizes(logs: int) -> dict[str, int]:
    """{key: bytes} of the logs that are there."""
    found = {}
    for key, path in log_files(logs):
        try:
            found[key] = os.stat(path, dir_fd=logs, follow_symlinks=False).st_size
        except OSError:
            continue
    return found


def new_log_text(logs: int, uid: int, offsets: dict[str, int], limit: int) -> dict[str, Json]:
    """{key: {begin, gap, offset, text, more}}: what is behind each offset, `limit` bytes of all logs at most."""
    limit = min(limit, MOST_PART)
    found = {}
    for key, path in log_files(logs):
        try:
            with files.opened(path, within=logs, owner=uid) as handle:
                part, used = next_part(handle, max(0, offsets.get(key, 0)), limit)
        except OSError:
            continue
        if part:
            found[key] = part
            limit -= used
    return found


def next_part(handle: int, begin: int, limit: int) -> tuple[Json | None, int]:
    """Return the part of a log behind an offset, and its bytes.

    It ends before the next hole. Where the limit ends it, that is behind a line (which `\\r` ends as well), if there is
    any. It never ends within a character, unless the log does.
    """
    size = os.fstat(handle).st_size
    if begin >= size:
        return None, 0
    start = next_data(handle, begin, size)
    data = os.pread(handle, min(limit + 1, next_hole(handle, start, size) - start), start)
    cut = len(data) > limit
    if cut:
        data = data[:limit]
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1] or data
    more = cut or (bool(data) and start + len(data) < size)  # a hole comes next
    if cut or not more:
        data = whole_characters(data) or (b"" if cut else data)
    end = start + len(data)
    text = data.decode("utf-8", "replace")
    return {"begin": begin, "gap": start - begin, "offset": end, "text": text, "more": more}, len(data)


def next_data(handle: int, begin: int, size: int) -> int:
    """Return where the next bytes are that were kept; the end where there are none."""
    try:
        return min(os.lseek(handle, begin, os.SEEK_DATA), size)
    except OSError:  # ENXIO
        return size


def next_hole(handle: int, start: int, size: int) -> int:
    try:
        return min(os.lseek(handle, start, os.SEEK_HOLE), size)
    except OSError:
        return size


def whole_characters(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character at its end, whose rest is still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    begun = len(decoder.getstate()[0])
    return data[: len(data) - begun]


def error_files(logs: int, uid: int) -> Json:
    """{LOCAL_RANK: error.json}: written by ranks whose main function is under torch's @record."""
    found = {}
    left = MOST_ERRORS
    for rank, path in rank_folders(logs):
        try:
            text = files.read(f"{path}/error.json", most=min(left, MOST_ERROR), within=logs, owner=uid)
        except OSError:
            continue
        left -= len(text)
        content = foreign.parsed(text)
        if content is not None:
            found[str(rank)] = content
    return found
