"""Stop a launch on a node, and find leftover processes."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..tools import process
from ..tools.as_user import SilentError, as_user
from . import state, written
from .ending import ask_to_end, pinned
from .kept import keep_end
from .looking import report

if TYPE_CHECKING:
    import pwd

Json = dict[str, Any]
MADE_BY_MUSTER = "Runs the cluster's training"  # the account's comment (role node_baseline)
NO_LOGIN = {"nologin", "false"}
# Prefixes of the names of units in which Muster runs checks as the training user, and Slurm runs that user's jobs.
OTHER_UNITS = ("muster-look-", "slurmd.service", "slurmstepd.scope")
MANAGERS = {"systemd"}  # a user's systemd instance, which ends some seconds after the last logout
SECONDS = 10.0
PATIENCE = 1.0  # for processes that end shortly after the unit, such as a command over ssh from another node
MOST = 50


# ---------------------------------------------------------------- leftovers

# Leftover processes of a launch: in its unit, with its mark, or of an account that only launches use.


def leftovers(launch_id: str, user: pwd.struct_passwd | None) -> tuple[list[Json], str]:
    """Return the leftover processes, and the error if the check fails.

    Command lines are read in a separate process, because reading them can block forever.
    """
    if user is None:
        return [], ""
    all_of_it = belongs_to_launches(launch_id, user)
    try:
        found = as_user(None, lambda: _look(launch_id, user.pw_uid, all_of_it=all_of_it), seconds=SECONDS)
    except SilentError as silent:
        return [], f"its processes could not be checked: {silent.strerror}"
    return found, ""


def belongs_to_launches(launch_id: str, user: pwd.struct_passwd) -> bool:
    """Return whether all processes of this user belong to this launch, because the account has no logins and no other
    launches."""
    if user.pw_gecos.split(",")[0] != MADE_BY_MUSTER and os.path.basename(user.pw_shell) not in NO_LOGIN:
        return False
    if user.pw_uid in {0, _reader(launch_id)}:
        return False
    others = [name for name in _launches() if name != launch_id]
    return all(state.is_over(name) for name in others)


def _launches() -> list[str]:
    try:
        return [name for name in os.listdir(state.root()) if process.LAUNCH_ID.match(name)]
    except OSError:
        return []


def _reader(launch_id: str) -> int:
    """Return the uid of the account that reads the launch's state and renews its lease."""
    try:
        return os.stat(f"{state.state_dir(launch_id)}/lease").st_uid
    except OSError:
        return 0


def _look(launch_id: str, uid: int, *, all_of_it: bool) -> list[Json]:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [pid for pid in process.ids() if _is_left(pid, launch_id, uid, all_of_it=all_of_it)]
        if not found or time.monotonic() > deadline:
            return [process.who(pid) for pid in found[:MOST]]
        time.sleep(0.1)


def _is_left(pid: int, launch_id: str, uid: int, *, all_of_it: bool) -> bool:
    if not process.runs(pid):
        return False
    if process.is_of_launch(pid, state.launch(launch_id), uid):
        return True
    if not all_of_it or process.user_id(pid) != uid:
        return False
    unit = process.outermost_unit(pid)
    if unit.startswith(OTHER_UNITS):
        return False
    return not (unit == f"user@{uid}.service" and os.path.basename(process.executable(pid)) in MANAGERS)


class StopEvidence(Protocol):
    """Collects data for a diagnosis. before_stop: collect data that is lost when the unit ends. record: return all data
    after the unit has ended."""

    def before_stop(self) -> None: ...

    def record(self) -> Json: ...


STOP_SECONDS = 600  # systemd kills a unit that takes longer to stop than launch_failure_timeout
STACK_SECONDS = 1.5  # for the ranks to print their stacks


def stop(request: Json, evidence: StopEvidence | None = None) -> Json:
    """Stop the unit, and return the last report including leftover processes.

    request: as for looking.look, with these fields. dump: first print the Python stacks of the ranks as evidence of a
    stall; `freeze` has stopped the ranks on all nodes. seconds: grace period for the ranks after a requested stop.
    evidence: collects data of the node for a diagnosis.
    """
    launch_id = request["launch_id"]
    unit = state.unit_name(launch_id)
    user = written.training_user(request)
    if request["dump"]:
        dump_stacks(launch_id)
    before = state.unit_state(unit)
    if evidence:
        evidence.before_stop()
    if request.get("seconds"):
        ask_to_end(launch_id, request["seconds"])
    stopped = state.systemctl("stop", unit, seconds=STOP_SECONDS)
    state.systemctl("reset-failed", unit)
    left, unseen = leftovers(launch_id, user)
    last = report(request)
    over = last["unit"]["ActiveState"] in ("inactive", "failed")
    still = "" if over else stopped.aside.strip() or "the unit is still " + last["unit"]["ActiveState"]
    last.update(unit_before=before, error=still or unseen, leftovers=left, clean=over and not left and not unseen)
    keep_end(request, last)
    last["record"] = evidence.record() if evidence else None
    if last["clean"]:
        state.forget(launch_id)
    return last


def freeze(request: Json) -> Json:
    """Stop the agent and the ranks with SIGSTOP, so that no rank notices the end of another rank before it has printed
    its stack."""
    table = written.read_table(request["launch_id"])
    agent = [table["agent"]] if table["agent"] else []
    stopped = send(request["launch_id"], [signal.SIGSTOP], [*agent, *table["ranks"]])
    return {"frozen": len([one for one in table["ranks"] if one["pid"] in stopped])}


def dump_stacks(launch_id: str) -> None:
    """Send SIGABRT to the ranks. With PYTHONFAULTHANDLER=1, Python then prints the stack to stderr."""
    asked = send(launch_id, [signal.SIGABRT, signal.SIGCONT], written.read_table(launch_id)["ranks"])
    deadline = time.monotonic() + STACK_SECONDS
    while time.monotonic() < deadline and any(map(may_answer, asked)):
        time.sleep(0.05)


def may_answer(pid: int) -> bool:
    seen = process.status(pid)
    return seen is not None and seen.state not in (*process.GONE, "T")


def send(launch_id: str, numbers: list[signal.Signals], processes: list[Json]) -> list[int]:
    """Send signals to the processes that belong to the launch. Return the PIDs that were signalled.

    The training user controls the table. Therefore the signals are sent as the training user and cannot reach processes
    of other users.
    """
    request = {"launch_id": launch_id}
    user = written.training_user(request)
    try:
        reached: list[int] = written.in_its_name(request, lambda: _send(launch_id, user, numbers, processes))
    except SilentError:
        return []
    return reached


def _send(
    launch_id: str, user: pwd.struct_passwd | None, numbers: list[signal.Signals], processes: list[Json]
) -> list[int]:
    reached = []
    for each in processes:
        with suppress(OSError), pinned(each["pid"]) as handle:
            known = process.runs(each["pid"], each["started"])
            if user and known and process.is_of_launch(each["pid"], state.launch(launch_id), user.pw_uid):
                for number in numbers:
                    signal.pidfd_send_signal(handle, number)
                reached.append(each["pid"])
    return reached
