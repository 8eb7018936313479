"""The main process of a launch's unit. As the training user, it runs torchrun or launch_command and monitors the lease,
the time limit and the ranks."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..tools import files
from .capping import Cap
from .ending import ASKED, END, LIMIT, SECONDS, RanksEnding
from .peers import Alone, join
from .ranks import Ranks, process_facts
from .seats import Seats
from .state import BEGIN, LET_GO, lease
from .written import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    # Loaded only at the end; named here so that pack.py includes it.
    from ..tools import control_group

    LOADED = control_group

Json = dict[str, Any]

# The outcome of this part for the other nodes.
STOPPED_HERE = "the unit was stopped"
HOW = {ASKED: "stopped on request", LIMIT: "reached the time limit"}
INNER_MODE = 0o755  # for users with access to the run directory above


class SampleKeeper(Protocol):
    def keep(self, ranks: Iterable[Json]) -> None: ...


def run(state: str, sampling: Callable[[str, float], SampleKeeper]) -> None:
    """Run the launch until it ends, the lease expires or the time limit is reached. Remaining processes end with the
    unit's cgroup.

    sampling: creates the sampler of the ranks from the state's folder and the seconds between two samples.

    The outcome is written to the result, and the exit status is always 0: systemd keeps a failed unit until it is
    reset, which might not happen after a lost connection.
    """
    spec = json.loads(files.read(state + "/spec.json"))
    signalled: list[float] = []  # when its unit was stopped
    signal.signal(signal.SIGTERM, lambda _number, _frame: signalled.append(time.time()))
    begun = begin(state, spec, signalled)
    if begun is None:
        return
    seats, peers = begun
    held = lease(state)
    cap = Cap(spec["run_dir"], spec["log_max"])
    agent = started(state, spec)
    if agent is None:
        return
    ranks = Ranks(agent.pid)
    samples = sampling(state, spec.get("observe", 0.0))
    noted = 0
    ending = RanksEnding()
    last_moment = time.monotonic() + (spec["time_limit"] or float("inf"))
    see_out = partial(peers.see_out, lambda: bool(signalled), last_moment)
    while True:
        code = agent.poll()
        seats.take()  # a shared launch takes slots that became free
        open_log_folder(spec["run_dir"])
        if ranks.look() or len(cap.notes) > noted:
            noted = len(cap.notes)
            write_table(state, ranks, cap, ending)
        samples.keep(ranks.table.values())
        if code is not None:
            write_result(state, ending.reason or ("stopped" if signalled else "exit"), signalled, code=code)
            seats.let_go()
            see_out(how_it_ended(code, ending.reason, stopped=bool(signalled)))
            return
        why = follow(state, peers, ending, stopped=bool(signalled))
        if why:
            write_result(state, "peer", error=why)
            see_out(why)
            return
        held = lease(state, held)
        if ending.reason:
            if ending.go_on(process_facts(agent.pid), ranks.table.values()):
                write_result(state, ending.reason)
                see_out(HOW[ending.reason])
                return
        elif not signalled and held[1] == END:
            ending.begin(ASKED, held[0])
            write_table(state, ranks, cap, ending)
        elif not signalled and time.monotonic() > held[0]:
            write_result(state, "lease")
            see_out("the lease expired")
            return
        elif not signalled and time.monotonic() > last_moment:
            ending.begin(LIMIT, time.monotonic() + spec.get("stop_timeout", SECONDS))
            write_table(state, ranks, cap, ending)
        cap.keep(0.1)


def begin(state: str, spec: Json, signalled: list[float]) -> tuple[Seats, Alone] | None:
    """Wait for the slots and the other nodes before the start. Return None if the launch ended while waiting."""
    try:
        seats = Seats(state, shared=spec["shared"])
    except OSError as problem:  # in a user launch: no access to the slots
        write_result(state, "exec", error=f"{problem.filename}: {problem.strerror}")
        return None
    over = wait_for_the_word(state, seats, signalled)
    if over:
        write_result(state, over)
        return None
    peers = join(spec.get("peers"))
    if why := peers.meet(lambda: bool(signalled)):
        write_result(state, "peer", error=why)
        return None
    return seats, peers


def started(state: str, spec: Json) -> subprocess.Popen[bytes] | None:
    """Start the launch's command. Return the process, or None if the start failed."""
    log = open_agent_log(spec["run_dir"])
    # The image's environment has the paths of its programs and libraries.
    env = {**os.environ, **spec["env"]} if spec.get("image") else spec["env"]
    try:
        return subprocess.Popen(spec["argv"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument or in the environment
        write_result(state, "exec", error=str(exc))
        return None


def follow(state: str, peers: Alone, ending: RanksEnding, *, stopped: bool) -> str:
    """Return the reason if this part must end because of another node. Report a stop of this unit to the other nodes at
    once."""
    if stopped and not ending.reason and not peers.told:
        write_result(state, "stopped")
        peers.tell(STOPPED_HERE)
    why = peers.step()  # heartbeats continue while this part is ending
    return "" if stopped or ending.reason else why


def how_it_ended(code: int, reason: str, *, stopped: bool) -> str:
    """Return the outcome to report to the other nodes; "" for success."""
    if reason or stopped:
        return HOW.get(reason, STOPPED_HERE)
    return f"torchrun exited with code {code}" if code else ""


def write_table(state: str, ranks: Ranks, cap: Cap, ending: RanksEnding) -> None:
    """Write the rank table for other processes; see foreign.table."""
    table = {"agent": process_facts(ranks.agent), "ranks": list(ranks.table.values()), "notes": cap.notes}
    write_json(state + "/unit/ranks.json", {**table, "ending": ending.facts()})


def wait_for_the_word(folder: str, seats: Seats, signalled: list[float]) -> str:
    """Take the slots, and wait until the supervisor confirms that all nodes hold their slots.

    Return the reason if the launch ended while waiting, or "" to start.
    """
    seen = lease(folder)
    while not signalled:
        until, word = seen = lease(folder, seen)
        if time.monotonic() > until:
            return "lease"
        if word == END:
            return ASKED
        if word == LET_GO:
            seats.let_go()
        else:
            seats.take()
        # A supervisor that attaches also writes this word: without its slots, a waiting launch does not start.
        if word == BEGIN and (seats.shared or not seats.missing):
            return ""
        time.sleep(0.05)
    return "stopped"


def open_agent_log(run_dir: str) -> int:
    """Open the log of the launcher, or /dev/null if the disk is full. In that case the ranks fail and report the full
    disk."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | files.SAFE
        return os.open(run_dir + "/logs/agent.log", flags, 0o644)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def open_log_folder(run_dir: str) -> None:
    """Make torchrun's log folder, which mkdtemp created with mode 0700, accessible to users with access to its parent
    folder."""
    for path in glob.glob(run_dir + "/logs/torchrun/*"):
        with suppress(OSError):
            if os.lstat(path).st_mode & 0o005 == 0:
                os.chmod(path, INNER_MODE)


def write_result(state: str, reason: str, signalled: Sequence[float] = (), **more: Any) -> None:
    """Write the outcome for the supervisor and to the journal, and the state of the control group while it exists.

    signalled: times of stop requests; the first is recorded as the end of this part. The stop of this unit can take
    longer than later stops of other nodes, so the current time would give a wrong order.
    """
    with suppress(Exception):  # the unit may be at its memory limit; these facts are optional
        module = import_module("...tools.control_group", __name__)
        write_json(f"{state}/unit/{GROUP}", module.unit_facts(os.getpid()))
    result = {"reason": reason, **more, "ended_at": (*signalled, time.time())[0]}
    write_json(state + "/unit/result.json", result)
    print("ended:", json.dumps(result), file=sys.stderr)


def write_json(path: str, value: Any) -> None:
    """Write a file for the supervisor. A write error does not end the launch."""
    with suppress(OSError):
        files.replace(path, json.dumps(value).encode())
