"""Answer the supervisor's repeated requests for the state of the launch and new output."""

from __future__ import annotations

import time
from typing import Any

from ..tools.disk import disk_facts
from . import state, written

Json = dict[str, Any]


def look(request: Json) -> Json:
    """Renew the lease, wait up to `wait` seconds for changes, and return a report. The first request makes the launch
    start its command.

    request: {launch_id, run_dir, lease, wait, offsets: {log: bytes seen}, limit: bytes to send at most}
    """
    state.renew_lease(state.state_dir(request["launch_id"]), request["lease"])
    written.wait_for_news(request)
    return report(request)


def logs(request: Json) -> Json:
    return {"logs": written.read_logs(request)}


def report(request: Json) -> Json:
    """Return the state of the launch on this node: {unit, result, ranks, errors, logs, notes, disk, clock}."""
    # Read the unit before its result: a unit that has ended has already written it.
    name = state.unit_name(request["launch_id"])
    unit = state.unit_state(name)
    found = written.read_all(request)
    if state.is_own() and found["result"] is None and unit["ActiveState"] in state.OVER:
        # If the user's systemd instance has ended, the result is gone with it, and the unit now shows that.
        unit = state.unit_state(name)
    return {
        "unit": unit,
        **found,
        "disk": disk_facts(request["run_dir"]),
        # Read last, because the controller compares it with the time of receipt.
        "clock": time.time(),
    }
