"""What the supervisor asks again and again: how the launch is, and what is new."""

from __future__ import annotations

import os
import time
from typing import Any

from ..tools import process
from . import state
from .facts import disk_facts
from .logs import error_files, log_files, new_log_text

Json = dict[str, Any]


def look(request: Json) -> Json:
    """Renew the lease, wait up to `wait` seconds for news, and report. The first look begins the launch's work.

    request: {launch_id, run_dir, lease, wait, offsets: {log: bytes seen}, limit: bytes to send at most}
    """
    folder = state.state_dir(request["launch_id"])
    state.renew_lease(folder, request["lease"])
    deadline = time.monotonic() + request["wait"]
    while time.monotonic() < deadline and not has_news(folder, request):
        time.sleep(0.05)
    return report(request)


def logs(request: Json) -> Json:
    return {"logs": new_log_text(request["run_dir"], request["offsets"], request["limit"])}


def report(request: Json) -> Json:
    """What is known of the launch here: {unit, result, ranks, errors, logs, disk, clock}."""
    folder = state.state_dir(request["launch_id"])
    # The unit before its result: one that is seen to be over has written it.
    unit = state.unit_state(state.unit_name(request["launch_id"]))
    table = state.read_json(folder + "/unit/ranks.json") or {"ranks": []}
    result = state.read_json(folder + "/unit/result.json")
    for rank in table["ranks"]:
        seen = process.status(rank["pid"])
        rank["state"], rank["cpu"] = (seen.state, seen.cpu) if seen else ("", 0.0)
        rank["wchan"] = process.read(rank["pid"], "wchan")
    return {
        "unit": unit,
        "result": result,
        "ranks": table["ranks"],
        "errors": error_files(request["run_dir"]),
        "logs": new_log_text(request["run_dir"], request["offsets"], request["limit"]),
        "notes": [],
        "disk": disk_facts(request["run_dir"]),
        # Taken last: the controller compares it with the time of receipt.
        "clock": time.time(),
    }


def has_news(folder: str, request: Json) -> bool:
    if os.path.exists(folder + "/unit/result.json"):
        return True
    return any(os.path.getsize(path) > request["offsets"].get(key, 0) for key, path in log_files(request["run_dir"]))
