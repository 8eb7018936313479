"""The main process of a launch's unit, as the training user: it runs torchrun, and watches lease, time and ranks."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from ..tools import files, process
from .capping import Cap
from .foreign import number
from .peers import join
from .seats import Seats
from .state import BEGIN, LET_GO, lease

Json = dict[str, Any]

INNER_MODE = 0o755  # for whoever was let into the run directory above


def run(state: str) -> None:
    """Run torchrun until it ends, the lease is old, or the time is up. The unit's cgroup takes the rest with it.

    How it ended is in the result, and the exit status is 0 whatever that was: a failed unit stays until somebody
    collects it, and after a lost connection nobody might.
    """
    spec = json.loads(files.read(state + "/spec.json"))
    signalled: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signalled.append(number))
    seats = Seats(state, shared=spec["shared"])
    over = wait_for_the_word(state, seats, signalled)
    if over:
        write_result(state, over)
        return
    peers = join(spec.get("peers"))
    if why := peers.meet(lambda: bool(signalled)):
        write_result(state, "peer", error=why)
        return
    log = open_agent_log(spec["run_dir"])
    cap = Cap(spec["run_dir"], spec["log_max"])
    try:
        agent = subprocess.Popen(spec["argv"], env=spec["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument or in the environment
        write_result(state, "exec", error=str(exc))
        return
    ranks: dict[int, Json] = {}
    noted = 0
    held = lease(state)
    last_moment = time.monotonic() + (spec["time_limit"] or float("inf"))
    while True:
        code = agent.poll()
        seats.take()  # a shared launch has those that became free
        open_log_folder(spec["run_dir"])
        if watch_ranks(agent.pid, ranks) or len(cap.notes) > noted:
            noted = len(cap.notes)
            table = {"agent": process_facts(agent.pid), "ranks": list(ranks.values()), "notes": cap.notes}
            write_json(state + "/unit/ranks.json", table)
        if code is not None:
            write_result(state, "stopped" if signalled else "exit", code=code)
            seats.let_go()
            peers.see_out(lambda: bool(signalled), last_moment, how_it_ended(code, stopped=bool(signalled)))
            return
        if not signalled and (why := peers.step()):
            write_result(state, "peer", error=why)
            peers.see_out(lambda: bool(signalled), last_moment, why)
            return
        held = lease(state, held)
        if not signalled and time.monotonic() > held[0]:
            write_result(state, "lease")
            peers.see_out(lambda: bool(signalled), last_moment, "its lease is over")
            return
        if not signalled and time.monotonic() > last_moment:
            write_result(state, "limit")
            peers.see_out(lambda: bool(signalled), last_moment, "its time limit is over")
            return
        cap.keep(0.1)


def how_it_ended(code: int, *, stopped: bool) -> str:
    """In the words that the other nodes get of it; nothing where it ended well."""
    if stopped:
        return "the unit was stopped"
    return f"torchrun ended with code {code}" if code else ""


def wait_for_the_word(folder: str, seats: Seats, signalled: list[int]) -> str:
    """Take the seats, and begin nothing before the supervisor has seen that this succeeded on every node.

    Return why it ended, or nothing when it is to begin.
    """
    seen = lease(folder)
    while not signalled:
        until, word = seen = lease(folder, seen)
        if time.monotonic() > until:
            return "lease"
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
    """torchrun's own output; nowhere, when the disk takes no new file (the ranks then fail and say so)."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | files.SAFE
        return os.open(run_dir + "/logs/agent.log", flags, 0o640)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def open_log_folder(run_dir: str) -> None:
    """torchrun makes its log folder with mkdtemp (0700): let in whoever the folder of the logs above it lets in."""
    for path in glob.glob(run_dir + "/logs/torchrun/*"):
        with suppress(OSError):
            if os.lstat(path).st_mode & 0o005 == 0:
                os.chmod(path, INNER_MODE)


def watch_ranks(agent: int, ranks: dict[int, Json]) -> bool:
    """Bring the table of ranks {pid: {...}} up to date from the agent's children; True when it changed."""
    changed = False
    alive = set(process.children(agent))
    for pid in alive - set(ranks):
        rank = rank_facts(pid)
        if rank is not None:
            ranks[pid] = rank
            changed = True
    for pid, rank in ranks.items():
        if rank["gone_at"] is None and (pid not in alive or not process.runs(pid)):
            rank["gone_at"] = time.time()
            changed = True
    return changed


def rank_facts(pid: int) -> Json | None:
    """{rank, local_rank, pid, started, gone_at} when this child of the agent is a rank, else None."""
    environ = process.environment(pid)
    rank, local_rank = (number(environ.get(name, "")) for name in ("RANK", "LOCAL_RANK"))
    facts = process_facts(pid)
    if rank is None or local_rank is None or facts is None:
        return None  # not yet exec'ed, or a helper process of the agent
    return {"rank": rank, "local_rank": local_rank, **facts, "gone_at": None}


def process_facts(pid: int) -> Json | None:
    """What names one process, and no later one of the same number."""
    seen = process.status(pid)
    return {"pid": pid, "started": seen.started} if seen else None


def write_result(state: str, reason: str, **more: Any) -> None:
    """Leave the reason for the supervisor, and in the journal for whoever looks there."""
    result = {"reason": reason, **more, "ended_at": time.time()}
    write_json(state + "/unit/result.json", result)
    print("ended:", json.dumps(result), file=sys.stderr)


def write_json(path: str, value: Any) -> None:
    """A note for the supervisor: that it cannot be written ends no launch."""
    with suppress(OSError):
        files.replace(path, json.dumps(value).encode())
