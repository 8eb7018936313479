"""Check the availability and the newest checkpoint of a node between two attempts of a launch."""

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

MOST_FOUND = 10_000  # names from a glob
MOST_TRIED = 50  # newest checkpoints to check for a complete one
MOST_PARTS = 2000  # files of a folder
MOST_HEADER = 25_000_000  # bytes; the largest models have some hundred thousand
ZIP, ZIP_END, ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", 66_000  # the longest comment, and the record before it
# Extensions of unfinished files.
UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", ".lock")


# ---------------------------------------------------------------- checkpoints

# The newest complete checkpoint that a glob finds, searched as the owner of the files.
#
# Incomplete files are detected by format: a file of torch.save ends like a zip file (the old format has no mark), a
# safetensors file contains its length, and .metadata is the last file written to a folder of
# torch.distributed.checkpoint.


def newest(pattern: str, work_dir: str) -> Json | None:
    """Return {path, time} of the newest complete checkpoint, or None. A relative glob is resolved in work_dir."""
    whole = os.path.join(glob.escape(work_dir), pattern)
    found = []
    for path in islice(glob.iglob(whole, recursive=True), MOST_FOUND):
        try:
            found.append((written(path), path))
        except OSError:
            continue  # removed in the meantime, like older checkpoints
    for time, path in sorted(found, reverse=True)[:MOST_TRIED]:
        if complete(path):
            return {"path": os.path.normpath(path), "time": time}
    return None


def written(path: str) -> float:
    """Return the modification time of a file, or of the newest file in a folder."""
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
    """Return whether the file is complete, as far as its format shows this. empty: whether an empty file counts as
    complete."""
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
    """Return the total size of the tensors according to the header of a safetensors file. Raises ValueError if the
    header is truncated."""
    ends = [one["data_offsets"][1] for name, one in json.loads(header).items() if name != "__metadata__"]
    return int(max(ends, default=0))


SMI_SECONDS = 15.0
CHECKPOINT_SECONDS = 15.0
FIELDS = "index,memory.used,ecc.errors.uncorrected.volatile.total"


def fit(request: Json) -> Json:
    """Return the state of the node without changing it; see FitRequest and Fit."""
    gpus, error = gpu_use() if request["gpus"] else ([], "")
    return {
        "running": [launch_id for launch_id in request["earlier"] if not state.is_over(launch_id)],
        "gpus": gpus,
        "gpu_error": error,
        "checkpoint": checkpoint_of(request) if request["checkpoints"] else None,
    }


def gpu_use() -> tuple[list[Json], str]:
    """Return {index, used_mib, uncorrected} of each GPU, and the error from nvidia-smi."""
    said = run("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", seconds=SMI_SECONDS)
    if said.code != 0:
        return [], said.why
    rows = [[word.strip() for word in line.split(",")] for line in said.text.splitlines() if line.strip()]
    # For a GPU without ECC or without separate memory, nvidia-smi prints [N/A] or [Not Supported].
    return [
        {"index": count(row[0]), "used_mib": count(row[1]), "uncorrected": count(row[2])}
        for row in rows
        if len(row) == 3 and row[0].isdecimal()
    ], ""


def count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def checkpoint_of(request: Json) -> Json | None:
    """Search for the newest checkpoint as the launch's user, because the paths can contain links that this user
    created."""
    try:
        user = pwd.getpwnam(request["user"])
        found: Json | None = as_user(
            user, lambda: newest(request["checkpoints"], request["work_dir"]), seconds=CHECKPOINT_SECONDS
        )
    except (KeyError, SilentError):
        return None
    return found
