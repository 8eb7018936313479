"""Files that a node keeps for a launch in addition to the logs. Any controller that can log in can use the files.

RUN_ROOT/ID/plan.json    the plan, without values of environment variables and secret arguments
RUN_ROOT/ID/ended.json   the outcome on this node: the result of the main process, when its ranks ended, and the reason
                         given for a stop

The files belong to root, or to the user of a user launch.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from . import foreign, state, written

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

PLAN, ENDED = "plan.json", "ended.json"
MOST_PLAN = 16_000_000  # bytes
MOST_ENDED = 100_000
MOST_SAID = 1000  # characters of why it was ended
MOST_RANKS = 256
MODE = 0o644


def keep_plan(spec: Json) -> None:
    """Store the plan of a starting launch. Raises OSError."""
    packed = spec.pop("plan", "")
    if packed:
        files.replace(f"{spec['run_dir']}/{PLAN}", unpacked(packed), mode=MODE)


def unpacked(packed: str) -> bytes:
    """Unpack a plan from the controller (muster_controller/launch/elsewhere.py). Raises OSError if it is invalid."""
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(base64.b64decode(packed, validate=True), MOST_PLAN)
    except (ValueError, binascii.Error, zlib.error) as problem:
        raise files.UnsafePathError(errno.EINVAL, f"cannot be stored: {problem}", PLAN) from None
    if not opened.eof:
        raise files.UnsafePathError(errno.EFBIG, "cannot be stored: too long or truncated", PLAN)
    return text


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text, 9)).decode()


def keep_end(request: Json, last: Mapping[str, Any]) -> None:
    """Store the outcome of the launch on this node, unless it is already stored. Write errors, such as a full disk, are
    ignored. request: {launch_id, run_dir, why?}. last: result of written.read_all."""
    path = f"{request['run_dir']}/{ENDED}"
    if os.path.lexists(path) or not os.path.lexists(f"{request['run_dir']}/{PLAN}"):
        return
    why = str(request.get("why", ""))[:MOST_SAID]
    ranks = foreign.table({"ranks": last["ranks"]})["ranks"][:MOST_RANKS]
    end = {"result": last["result"], "why": why, "at": time.time(), "ranks": ranks}
    with suppress(OSError):
        files.replace(path, json.dumps(end).encode(), mode=MODE)


def keep_ends(run_root: str) -> None:
    """Store the outcomes of launches that ended without a supervisor, before the state of these launches is removed."""
    for launch_id in launches(state.root()):
        request = {"launch_id": launch_id, "run_dir": f"{run_root}/{launch_id}"}
        if os.path.isdir(request["run_dir"]) and state.is_over(launch_id):
            keep_end(request, written.read_all({**request, "offsets": {}, "limit": 0}))


def launches(folder: str) -> list[str]:
    """Return the ids of the launches in this folder, newest first."""
    try:
        return sorted(filter(process.LAUNCH_ID.match, os.listdir(folder)), reverse=True)
    except OSError:
        return []


def read_plan(run_dir: str) -> Json | None:
    """Return the plan in a launch's folder; None if it is missing or unusable."""
    found = _read(run_dir, PLAN, MOST_PLAN)
    return found if isinstance(found, dict) and isinstance(found.get("nodes"), list) else None


def read_end(run_dir: str) -> Json | None:
    """Return the stored outcome {result, why, at, ranks}; None if it is missing."""
    found = _read(run_dir, ENDED, MOST_ENDED)
    if not isinstance(found, dict) or not isinstance(found.get("at"), (int, float)):
        return None
    return {
        "result": foreign.result(found.get("result")),
        "why": str(found.get("why", "")),
        "at": found["at"],
        "ranks": foreign.table({"ranks": found.get("ranks")})["ranks"],
    }


def _read(run_dir: str, name: str, most: int) -> Any:
    """Return the JSON value of a file. Only a file that belongs to the owner of the launch's folder is read."""
    try:
        with files.folder(run_dir) as folder:
            return foreign.parsed(files.read(name, most=most, within=folder, owner=os.fstat(folder).st_uid))
    except OSError:
        return None
