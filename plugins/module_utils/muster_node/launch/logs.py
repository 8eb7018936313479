"""Read new output in the logs of ranks and torchrun (RUN_ROOT/ID/logs), and the error files.

The training user owns these files: only regular files of that user are opened, no links are followed, and every step
has a limit. A log that exceeded its limit has a hole in the middle (capping.py).

    agent.log                                     torchrun's own log
    torchrun/JOB/attempt_0/LOCAL_RANK/std*.log    the logs of its ranks, next to error.json
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
MOST_ERRORS = 4_000_000  # bytes of all error.json files in one answer
MOST_JOBS = 4  # torchrun makes one


@contextmanager
def log_folder(run_dir: str) -> Iterator[tuple[int, int]]:
    """Yield the descriptor of the logs folder and the uid of its owner, the training user."""
    with files.folder(f"{run_dir}/logs") as handle:
        yield handle, os.fstat(handle).st_uid


def log_files(logs: int) -> list[tuple[str, str]]:
    """Return (key, path) of all possible logs: 'agent', 'LOCAL_RANK/stderr' and 'LOCAL_RANK/stdout' of each rank."""
    folders = rank_folders(logs)
    # stderr of all ranks comes first: a flood on one rank's stdout must not delay the cause of another rank's failure.
    streams = [(stream, rank, path) for stream in ("stderr", "stdout") for rank, path in folders]
    return [("agent", "agent.log"), *((f"{rank}/{stream}", f"{path}/{stream}.log") for stream, rank, path in streams)]


def rank_folders(logs: int) -> list[tuple[int, str]]:
    """Return (local rank, path) of each rank. If several folders have the same local rank, the first one counts."""
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
    """Return {key: bytes} of the existing logs."""
    found = {}
    for key, path in log_files(logs):
        try:
            found[key] = os.stat(path, dir_fd=logs, follow_symlinks=False).st_size
        except OSError:
            continue
    return found


def new_log_text(logs: int, uid: int, offsets: dict[str, int], limit: int) -> dict[str, Json]:
    """Return {key: {begin, gap, offset, text, more}}: text after each offset, at most `limit` bytes in total."""
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
    """Return the part of a log after an offset, and the part's size in bytes.

    The part ends before the next hole. If the limit cuts the part, it ends after the last complete line (ended by `\\n`
    or `\\r`), if there is one. The part never ends within a character, unless the log does.
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
    """Return the offset of the next data; the end of the file if there is none."""
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
    """Return the data without an incomplete UTF-8 character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    begun = len(decoder.getstate()[0])
    return data[: len(data) - begun]


def error_files(logs: int, uid: int) -> Json:
    """Return {LOCAL_RANK: error.json} of the ranks whose main function has torch's @record decorator."""
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
