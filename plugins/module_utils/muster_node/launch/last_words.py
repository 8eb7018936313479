"""What a launch that failed left as its last words here: by them the controller names the rank that failed first.

Called as the launch's user, whose word all of it is. Bounded, as it is sent for every launch of a list.
"""

from __future__ import annotations

import json
from typing import Any

from ..tools import files
from .logs import error_files, log_files, log_folder

Json = dict[str, Any]

AGENT = 8192  # bytes of the launcher's own log, which ends with its table of exit codes
ALL_RANKS = 1 << 16  # bytes of all ranks' stderr together
RANK = 8192  # and of one rank's: a traceback of forty frames
MOST_ERROR = 1 << 14  # characters of an error file


def last_words(run_dir: str, result: Json | None, ranks: list[Json]) -> Json | None:
    """{agent, stderr, errors, ranks}, by local rank; None where it ended well here. ranks: as running.py notes them."""
    if result and (result["reason"], result.get("code")) == ("exit", 0):
        return None
    found: Json = {"agent": "", "stderr": {}, "errors": {}, "ranks": ranks}
    try:
        with log_folder(run_dir) as (logs, uid):
            wanted = {key: path for key, path in log_files(logs) if not key.endswith("/stdout")}
            most = min(RANK, ALL_RANKS // max(1, len(wanted) - 1))
            for key, path in wanted.items():
                text = tail(logs, uid, path, most if "/" in key else AGENT)
                if "/" in key:
                    found["stderr"][key.partition("/")[0]] = text
                else:
                    found["agent"] = text
            errors = error_files(logs, uid)
    except OSError:
        return found
    left = ALL_RANKS
    for local, error in errors.items():
        size = len(json.dumps(error))
        if size <= min(left, MOST_ERROR):
            found["errors"][local] = error
            left -= size
    return found


def tail(logs: int, uid: int, path: str, most: int) -> str:
    try:
        return files.part(path, -most, most, within=logs, owner=uid).decode("utf-8", "replace")
    except OSError:
        return ""
