"""The main process of a launch's unit, as the training user: it runs torchrun, or the command that was brought, and
watches lease, time and ranks."""

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

    # Loaded at the end alone, and named for pack.py, which has to bring it.
    from ..tools import control_group

    LOADED = control_group

Json = dict[str, Any]

# How this part ended, as the other nodes hear it.
STOPPED_HERE = "the unit was stopped"
HOW = {ASKED: "it was ended on request", LIMIT: "its time limit is over"}
INNER_MODE = 0o755  # for whoever was let into the run directory above


class SampleKeeper(Protocol):
    def keep(self, ranks: Iterable[Json]) -> None: ...


def run(state: str, sampling: Callable[[str, float], SampleKeeper]) -> None:
    """Run it until it ends, the lease is old, or the time is up. The unit's cgroup takes the rest with it.

    sampling: what notes how the ranks are, made of the state's folder and the seconds between two samples.

    How it ended is in the result, and the exit status is 0 whatever that was: a failed unit stays until somebody
    collects it, and after a lost connection nobody might.
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
        seats.take()  # a shared launch has those that became free
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
            see_out("its lease is over")
            return
        elif not signalled and time.monotonic() > last_moment:
            ending.begin(LIMIT, time.monotonic() + spec.get("stop_timeout", SECONDS))
            write_table(state, ranks, cap, ending)
        cap.keep(0.1)


def begin(state: str, spec: Json, signalled: list[float]) -> tuple[Seats, Alone] | None:
    """Wait until the work may begin, with seats and the other nodes; None where it ended before."""
    try:
        seats = Seats(state, shared=spec["shared"])
    except OSError as problem:  # in somebody's own launch: they do not come to them
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
    """What the plan says, under way; None where it could not be started."""
    log = open_agent_log(spec["run_dir"])
    # An image says by its environment where its programs and libraries are.
    env = {**os.environ, **spec["env"]} if spec.get("image") else spec["env"]
    try:
        return subprocess.Popen(spec["argv"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument or in the environment
        write_result(state, "exec", error=str(exc))
        return None


def follow(state: str, peers: Alone, ending: RanksEnding, *, stopped: bool) -> str:
    """What ends this part because of the others; they hear at once when its unit is stopped, which may take long."""
    if stopped and not ending.reason and not peers.told:
        write_result(state, "stopped")
        peers.tell(STOPPED_HERE)
    why = peers.step()  # while this part ends in its own time, the others hear that it is there
    return "" if stopped or ending.reason else why


def how_it_ended(code: int, reason: str, *, stopped: bool) -> str:
    """In the words that the other nodes get of it; nothing where it ended well."""
    if reason or stopped:
        return HOW.get(reason, STOPPED_HERE)
    return f"torchrun ended with code {code}" if code else ""


def write_table(state: str, ranks: Ranks, cap: Cap, ending: RanksEnding) -> None:
    """For whoever looks; see foreign.table."""
    table = {"agent": process_facts(ranks.agent), "ranks": list(ranks.table.values()), "notes": cap.notes}
    write_json(state + "/unit/ranks.json", {**table, "ending": ending.facts()})


def wait_for_the_word(folder: str, seats: Seats, signalled: list[float]) -> str:
    """Take the seats, and begin nothing before the supervisor has seen that this succeeded on every node.

    Return why it ended, or nothing when it is to begin.
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
        # Who attaches to a launch that still waits says so too: it does not begin on somebody else's seats.
        if word == BEGIN and (seats.shared or not seats.missing):
            return ""
        time.sleep(0.05)
    return "stopped"


def open_agent_log(run_dir: str) -> int:
    """The launcher's own output; nowhere, when the disk takes no new file (the ranks then fail and say so)."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | files.SAFE
        return os.open(run_dir + "/logs/agent.log", flags, 0o644)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def open_log_folder(run_dir: str) -> None:
    """torchrun makes its log folder with mkdtemp (0700): let in whoever the folder of the logs above it lets in."""
    for path in glob.glob(run_dir + "/logs/torchrun/*"):
        with suppress(OSError):
            if os.lstat(path).st_mode & 0o005 == 0:
                os.chmod(path, INNER_MODE)


def write_result(state: str, reason: str, signalled: Sequence[float] = (), **more: Any) -> None:
    """Leave the reason for the supervisor, and in the journal for whoever looks there. What its control group used and
    was refused is gone with it.

    signalled: when its unit was stopped, which is when it ended: it may take longer than the supervisor takes to stop
    the other nodes, and was nevertheless the first.
    """
    with suppress(Exception):  # in a unit that is at its limit of memory: it ends as it would without this
        module = import_module("...tools.control_group", __name__)
        write_json(f"{state}/unit/{GROUP}", module.unit_facts(os.getpid()))
    result = {"reason": reason, **more, "ended_at": (*signalled, time.time())[0]}
    write_json(state + "/unit/result.json", result)
    print("ended:", json.dumps(result), file=sys.stderr)


def write_json(path: str, value: Any) -> None:
    """A note for the supervisor: that it cannot be written ends no launch."""
    with suppress(OSError):
        files.replace(path, json.dumps(value).encode())
