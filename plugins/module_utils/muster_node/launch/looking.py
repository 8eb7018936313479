"""What the supervisor asks again and again: how the launch is, and what is new."""

from __future__ import annotations

import time
from typing import Any

from ..tools.disk import disk_facts
from . import state, written

Json = dict[str, Any]


def look(request: Json) -> Json:
    """Renew the lease, wait up to `wait` seconds for news, and report. The first look begins the launch's work.

    request: {launch_id, run_dir, lease, wait, offsets: {log: bytes seen}, limit: bytes to send at most}
    """
    state.renew_lease(state.state_dir(request["launch_id"]), request["lease"])
    written.wait_for_news(request)
    return report(request)


def logs(request: Json) -> Json:
    return {"logs": written.read_logs(request)}


def report(request: Json) -> Json:
    """What is known of the launch here: {unit, result, ranks, errors, logs, notes, disk, clock}."""
    # The unit before its result: one that is seen to be over has written it.
    name = state.unit_name(request["launch_id"])
    unit = state.unit_state(name)
    found = written.read_all(request)
    if state.is_own() and found["result"] is None and unit["ActiveState"] in state.OVER:
        # A user's manager that ends takes the result with it; by now it shows that it is gone.
        unit = state.unit_state(name)
    return {
        "unit": unit,
        **found,
        "disk": disk_facts(request["run_dir"]),
        # Taken last: the controller compares it with the time of receipt.
        "clock": time.time(),
    }
