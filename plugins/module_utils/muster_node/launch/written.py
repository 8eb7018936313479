"""Read files that the training user wrote with that user's rights, because the user's links could redirect root to any
file. Files that belong to other accounts are not accepted."""

from __future__ import annotations

import os
import pwd
import time
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from ..tools.as_user import SilentError, as_user
from . import foreign
from .logs import error_files, log_folder, new_log_text, sizes
from .state import state_dir

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

SECONDS = 10.0  # for what should take milliseconds
NOTHING: Json = {"result": None, "ranks": [], "errors": {}, "logs": {}, "notes": [], "ending": None, "samples": None}
MOST_RESULT = 100_000  # bytes
GROUP = "group.json"
MOST_TABLE = 1_000_000
MOST_SAMPLES = 256 * 1024


def training_user(request: Json) -> pwd.struct_passwd | None:
    """Return the owner of the launch's folders; None if the folders or the account do not exist."""
    for path in (f"{state_dir(request['launch_id'])}/unit", f"{request.get('run_dir')}/logs"):
        try:
            return pwd.getpwuid(os.stat(path, follow_symlinks=False).st_uid)
        except (OSError, KeyError):
            continue
    return None


def in_its_name(request: Json, work: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Run the function as the training user; without root, as the current user. Raises SilentError."""
    user = training_user(request)
    if user is None:
        raise SilentError(0, "the launch has no folders on this node")
    return as_user(user, work, seconds=seconds)


def read_all(request: Json) -> Json:
    """Return {result, ranks, errors, logs, notes, ending}. Unreadable data is left out and reported in a note."""
    if training_user(request) is None:
        return NOTHING
    try:
        found: Json = in_its_name(request, lambda: _all(request))
    except SilentError as silent:
        return {**NOTHING, "notes": [f"the files of the launch could not be read: {silent.strerror}"]}
    return found


def read_logs(request: Json) -> Json:
    try:
        found: Json = in_its_name(request, lambda: _logs(request)["logs"])
    except SilentError:
        return {}
    return found


def read_table(launch_id: str) -> Json:
    """Return {agent, ranks, notes} as written by the main process."""
    request = {"launch_id": launch_id}
    try:
        found: Json = in_its_name(request, lambda: _unit(launch_id)[1])
    except SilentError:
        return foreign.table(None)
    return found


def read_group(launch_id: str) -> Json | None:
    """Return the control group data that the main process wrote when it ended."""
    try:
        found = in_its_name({"launch_id": launch_id}, lambda: _json(launch_id, GROUP, MOST_RESULT))
    except SilentError:
        return None
    return found if isinstance(found, dict) else None


def wait_for_news(request: Json) -> None:
    """Wait up to `wait` seconds for new output."""
    try:
        in_its_name(request, lambda: _wait(request), request["wait"] + SECONDS)
    except SilentError:
        return  # the next read reports the error


# ---------------------------------------------------------------- as the training user


def _all(request: Json) -> Json:
    result, table = _unit(request["launch_id"])
    uid = _unit_owner(request["launch_id"])
    for rank in table["ranks"]:
        seen = process.status(rank["pid"])
        ours = seen is not None and seen.started == rank["started"] and process.user_id(rank["pid"]) in {uid, None}
        rank["state"], rank["cpu"] = (seen.state, seen.cpu) if seen and ours else ("", 0.0)
        rank["wchan"] = process.read(rank["pid"], "wchan") if ours else ""
    ending = table["ending"] and {**table["ending"], "left": max(0.0, table["ending"]["until"] - time.monotonic())}
    told = {name: table[name] for name in ("ranks", "notes")}
    return {**_logs(request), "result": result, **told, "ending": ending, "samples": _samples(request)}


def _samples(request: Json) -> Json | None:
    """Return new samples of the ranks and the samples' age; None if there are no new samples."""
    found = _json(request["launch_id"], "samples.json", MOST_SAMPLES)
    if not isinstance(found, dict) or found.get("number") == request.get("sampled"):
        return None
    at = found.get("at")
    return {**found, "age": time.monotonic() - at} if isinstance(at, (int, float)) else None


def _logs(request: Json) -> Json:
    try:
        with log_folder(request["run_dir"]) as (logs, uid):
            text = new_log_text(logs, uid, request["offsets"], request["limit"])
            return {"logs": text, "errors": error_files(logs, uid)}
    except OSError:
        return {"logs": {}, "errors": {}}


def _unit_owner(launch_id: str) -> int | None:
    try:
        return os.stat(f"{state_dir(launch_id)}/unit").st_uid
    except OSError:
        return None


def _unit(launch_id: str) -> tuple[Json | None, Json]:
    """Return the result and the process table that the main process wrote."""
    return (
        foreign.result(_json(launch_id, "result.json", MOST_RESULT)),
        foreign.table(_json(launch_id, "ranks.json", MOST_TABLE)),
    )


def _json(launch_id: str, name: str, most: int) -> Any:
    try:
        with files.folder(f"{state_dir(launch_id)}/unit") as unit:
            return foreign.parsed(files.read(name, most=most, within=unit, owner=os.fstat(unit).st_uid))
    except OSError:
        return None


def _wait(request: Json) -> None:
    deadline = time.monotonic() + request["wait"]
    while time.monotonic() < deadline and not _has_news(request):
        time.sleep(0.05)


def _has_news(request: Json) -> bool:
    if os.path.lexists(f"{state_dir(request['launch_id'])}/unit/result.json"):
        return True
    try:
        with log_folder(request["run_dir"]) as (logs, _):
            return any(size > request["offsets"].get(key, 0) for key, size in sizes(logs).items())
    except OSError:
        return False
