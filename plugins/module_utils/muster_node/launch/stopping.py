"""How a launch ends on a node, and what is left of it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Any

from ..tools import process
from ..tools.run import run as command
from . import state
from .looking import report

Json = dict[str, Any]

STOP_SECONDS = 600  # systemd itself ends what takes longer to stop than launch_stop_timeout


def stop(request: Json) -> Json:
    """End the unit, and report for the last time what happened and what is left of it: nothing, or by name.

    request: as for look, with dump: first ask every rank, which `freeze` has stopped on all
    nodes, for its Python stack, so that a standstill leaves evidence.
    """
    launch_id = request["launch_id"]
    unit = state.unit_name(launch_id)
    if request["dump"]:
        dump_stacks(launch_id)
    before = state.unit_state(unit)
    stopped = command("systemctl", "stop", unit, seconds=STOP_SECONDS)
    command("systemctl", "reset-failed", unit, seconds=state.SYSTEMCTL_SECONDS)
    leftovers = [process.who(pid) for pid in process.of_launch(launch_id)]
    last = report(request)
    over = last["unit"]["ActiveState"] in ("inactive", "failed")
    last.update(
        unit_before=before,
        error="" if over else stopped.aside.strip() or "the unit is still " + last["unit"]["ActiveState"],
        leftovers=leftovers,
        clean=over and not leftovers,
    )
    if last["clean"]:
        shutil.rmtree(state.state_dir(launch_id), ignore_errors=True)
    return last


def freeze(request: Json) -> Json:
    """Stop the agent and the ranks where they are, so that none sees another die before it has shown its own stack."""
    agent, ranks = agent_and_ranks(request["launch_id"])
    send(signal.SIGSTOP, agent + ranks)
    return {"frozen": len(ranks)}


def agent_and_ranks(launch_id: str) -> tuple[list[int], list[int]]:
    table = state.read_json(state.state_dir(launch_id) + "/unit/ranks.json") or {"agent": None, "ranks": []}
    ours = set(process.of_launch(launch_id))
    ranks = [rank["pid"] for rank in table["ranks"] if rank["pid"] in ours]
    return [table["agent"]] if table["agent"] in ours else [], ranks


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def dump_stacks(launch_id: str) -> None:
    """SIGABRT, which PYTHONFAULTHANDLER=1 answers on stderr before anything else is done."""
    _, asked = agent_and_ranks(launch_id)
    send(signal.SIGABRT, asked)
    send(signal.SIGCONT, asked)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline and any(map(may_answer, asked)):
        time.sleep(0.05)


def may_answer(pid: int) -> bool:
    seen = process.status(pid)
    return seen is not None and seen.state not in (*process.GONE, "T")
