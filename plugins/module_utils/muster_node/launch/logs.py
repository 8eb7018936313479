"""What the ranks and torchrun wrote: the parts of their logs that are new, and their error files."""

from __future__ import annotations

import codecs
import glob
import json
import os
from typing import Any

from ..tools import files

Json = dict[str, Any]

MOST_ERROR = 1_000_000  # bytes of an error.json


def log_files(run_dir: str) -> list[tuple[str, str]]:
    """[(key, path)] of every log there is: 'agent', and 'LOCAL_RANK/stdout' and 'LOCAL_RANK/stderr' of each rank."""
    found = []
    if os.path.exists(run_dir + "/agent.log"):
        found.append(("agent", run_dir + "/agent.log"))
    # stderr of all ranks comes first: a rank that floods its stdout must not keep the reason of another's end back.
    paths = glob.glob(run_dir + "/torchrun/*/attempt_0/*/std*.log")
    for path in sorted(paths, key=lambda one: (os.path.basename(one), one)):
        folder, name = os.path.split(path)
        found.append((os.path.basename(folder) + "/" + name[: -len(".log")], path))
    return found


def new_log_text(run_dir: str, offsets: dict[str, int], limit: int) -> dict[str, Json]:
    """{key: {begin, offset, text, more}}: what is behind each offset, `limit` bytes of all logs together at most.

    Where there is more, the text ends with a line; it never ends within a character, unless the log does.
    """
    found = {}
    for key, path in log_files(run_dir):
        offset = offsets.get(key, 0)
        try:
            with files.folder(run_dir) as within:
                data = files.part(path.removeprefix(run_dir + "/"), offset, limit + 1, within=within)
        except OSError:
            continue
        if not data:
            continue
        more = len(data) > limit
        data = data[:limit]
        if more and b"\n" in data:
            data = data[: data.rindex(b"\n") + 1]
        data = whole_characters(data) or (b"" if more else data)
        limit -= len(data)
        text = data.decode("utf-8", "replace")
        found[key] = {"begin": offset, "gap": 0, "offset": offset + len(data), "text": text, "more": more}
    return found


def whole_characters(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character at its end, whose rest is still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    begun = len(decoder.getstate()[0])
    return data[: len(data) - begun]


def error_files(run_dir: str) -> Json:
    """{LOCAL_RANK: error.json}: written by ranks whose main function is under torch's @record."""
    found = {}
    for path in glob.glob(run_dir + "/torchrun/*/attempt_0/*/error.json"):
        content = error_file(run_dir, path.removeprefix(run_dir + "/"))
        if content is not None:
            found[os.path.basename(os.path.dirname(path))] = content
    return found


def error_file(run_dir: str, name: str) -> Any:
    try:
        with files.folder(run_dir) as within:
            return json.loads(files.read(name, most=MOST_ERROR, within=within))
    except (OSError, ValueError):
        return None
