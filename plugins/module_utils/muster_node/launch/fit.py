"""Between two attempts of a launch: whether the node can take part in the next one, and its newest checkpoint."""

from __future__ import annotations

import glob
import json
import os
import pwd
import stat
import struct
from itertools import islice
from typing import Any

from ..tools.as_user import SilentError, as_user
from ..tools.run import run
from . import state

Json = dict[str, Any]

MOST_FOUND = 10_000  # names that a glob gives
MOST_TRIED = 50  # of the newest, until one is complete
MOST_PARTS = 2000  # files of a folder
MOST_HEADER = 25_000_000  # bytes; of the largest models it has some hundred thousand
ZIP, ZIP_END, ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", 66_000  # the longest comment, and the record before it
# How writers call what they have not finished.
UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", ".lock")


# ---------------------------------------------------------------- checkpoints

# The newest complete checkpoint that a glob finds. Run in the name of whoever wrote them.
#
# What was cut off while it was written is no checkpoint: a file of torch.save has a zip's end (or, in its old format,
# nothing that can be seen), one of safetensors says its own length, a folder of torch.distributed.checkpoint gets its
# .metadata last.


def newest(pattern: str, work_dir: str) -> Json | None:
    """{path, time} of the newest complete one, None where there is none. A relative glob begins in work_dir."""
    whole = os.path.join(glob.escape(work_dir), pattern)
    found = []
    for path in islice(glob.iglob(whole, recursive=True), MOST_FOUND):
        try:
            found.append((written(path), path))
        except OSError:
            continue  # gone meanwhile, as older ones are
    for time, path in sorted(found, reverse=True)[:MOST_TRIED]:
        if complete(path):
            return {"path": os.path.normpath(path), "time": time}
    return None


def written(path: str) -> float:
    """When it was written: a folder, when the newest file in it was."""
    seen = os.stat(path)
    if not stat.S_ISDIR(seen.st_mode):
        return seen.st_mtime
    parts = [entry.stat(follow_symlinks=False).st_mtime for entry in islice(os.scandir(path), MOST_PARTS)]
    return max([seen.st_mtime, *parts])


def complete(path: str) -> bool:
    if path.endswith(UNFINISHED):
        return False
    try:
        return complete_folder(path) if os.path.isdir(path) else complete_file(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return False


def complete_folder(path: str) -> bool:
    with os.scandir(path) as entries:
        names = [entry.name for entry in islice(entries, MOST_PARTS)]
    if any(name.endswith(".distcp") for name in names):
        return ".metadata" in names
    files = [name for name in names if os.path.isfile(os.path.join(path, name))]
    if any(name.endswith(UNFINISHED) for name in files):
        return False
    return bool(files) and all(complete_file(os.path.join(path, name), empty=True) for name in files)


def complete_file(path: str, *, empty: bool = False) -> bool:
    """Whether nothing of the file is missing, as far as its format says so. empty: whether it may be."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            return False
        begin = file.read(8)
        if begin.startswith(ZIP):
            file.seek(max(0, seen.st_size - ZIP_TAIL))
            return ZIP_END in file.read(ZIP_TAIL)
        if path.endswith(".safetensors"):
            (size,) = struct.unpack("<Q", begin)
            return bool(size <= MOST_HEADER and seen.st_size >= 8 + size + length_of(file.read(size)))
        return empty or seen.st_size > 0


def length_of(header: bytes) -> int:
    """The bytes that the tensors of a file of safetensors have by its header. Raises ValueError where that is cut."""
    ends = [one["data_offsets"][1] for name, one in json.loads(header).items() if name != "__metadata__"]
    return int(max(ends, default=0))


SMI_SECONDS = 15.0
CHECKPOINT_SECONDS = 15.0
FIELDS = "index,memory.used,ecc.errors.uncorrected.volatile.total"


def fit(request: Json) -> Json:
    """Look, and change nothing; see FitRequest and Fit."""
    gpus, error = gpu_use() if request["gpus"] else ([], "")
    return {
        "running": [launch_id for launch_id in request["earlier"] if not state.is_over(launch_id)],
        "gpus": gpus,
        "gpu_error": error,
        "checkpoint": checkpoint_of(request) if request["checkpoints"] else None,
    }


def gpu_use() -> tuple[list[Json], str]:
    """({index, used_mib, uncorrected} of each GPU, why there is nothing to say of them)."""
    said = run("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", seconds=SMI_SECONDS)
    if said.code != 0:
        return [], said.why
    rows = [[word.strip() for word in line.split(",")] for line in said.text.splitlines() if line.strip()]
    # A GPU without such a memory, or without memory of its own, says [N/A] or [Not Supported].
    return [
        {"index": count(row[0]), "used_mib": count(row[1]), "uncorrected": count(row[2])}
        for row in rows
        if len(row) == 3 and row[0].isdecimal()
    ], ""


def count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def checkpoint_of(request: Json) -> Json | None:
    """Looked for in the name of the launch's user: whoever has written them may have laid links."""
    try:
        user = pwd.getpwnam(request["user"])
        found: Json | None = as_user(
            user, lambda: newest(request["checkpoints"], request["work_dir"]), seconds=CHECKPOINT_SECONDS
        )
    except (KeyError, SilentError):
        return None
    return found
