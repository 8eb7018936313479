"""Takes snapshots of ranks from the kernel's data; see RankShot in muster/diagnosis/evidence.py.

This code runs as the training user, because open files and wait channels of a process are visible only to the process's
user and root.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from ..launch.logs import log_folder, rank_folders
from ..tools import process
from . import sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .sockets import Connection

Json = dict[str, Any]

MOST_RANKS = 64
MOST_SOCKETS = 24
MOST_FILES = 4096  # descriptors that are checked for sockets
MOST_FRAMES, MOST_FRAME = 40, 200
STREAMS = ("stdout.log", "stderr.log")
NOT_OBSERVED: Json = {"stack": [], "stack_why": "not observed", "flight": None, "flight_why": "not observed"}


def not_observed(_pids: list[int]) -> dict[int, Json]:
    return {}


def shots(
    ranks: list[Json], said: dict[int, float], observe: Callable[[list[int]], dict[int, Json]] = not_observed
) -> list[Json]:
    """Return the snapshots of running ranks. ranks: {rank, local_rank, pid, started} for each rank. said: time of the
    last log output by local rank. observe: function that returns data from inside the processes by PID."""
    there = [rank for rank in ranks[:MOST_RANKS] if process.runs(rank["pid"], rank["started"])]
    try:
        known = {each.inode: each for each in sockets.connections() if each.inode and each.state != sockets.LISTEN}
    except OSError:
        known = {}
    found = [shot(rank, said, known) for rank in there]
    within = observe([rank["pid"] for rank in there])
    return [{**each, **within.get(each["pid"], NOT_OBSERVED)} for each in found if each]


def shot(rank: Json, said: dict[int, float], known: dict[int, Connection]) -> Json:
    """Return the snapshot of one rank; {} if the rank has just ended."""
    pid = rank["pid"]
    seen = process.status(pid)
    if seen is None or seen.started != rank["started"]:
        return {}
    status = process.read(pid, "status")
    opened = open_files(pid)
    wrote = said.get(rank["local_rank"])
    return {
        "rank": rank["rank"],
        "local_rank": rank["local_rank"],
        "pid": pid,
        "state": seen.state,
        "wchan": process.read(pid, "wchan").strip("\0\n")[:64],
        "cpu": seen.cpu,
        "memory": 1024 * field(status, "VmRSS"),
        "files": len(opened),
        "threads": field(status, "Threads"),
        "sockets": shown(known[inode] for inode in inodes(pid, opened) if inode in known),
        "said": None if wrote is None else round(max(0.0, time.time() - wrote), 1),
    }


def field(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


def open_files(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def inodes(pid: int, opened: list[str]) -> list[int]:
    found = []
    for name in opened[:MOST_FILES]:
        try:
            leads = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed since the listing
        if leads.startswith("socket:["):
            found.append(int(leads[8:-1]))
    return found


def shown(of_it: Iterable[Connection]) -> list[Json]:
    """Return connections with the most informative first: retransmitting connections, then connections to other
    nodes."""
    ordered = sorted(of_it, key=lambda each: (not each.retransmits, not each.queued, within(each), each.peer))
    return [
        {
            "local": end(each.local),
            "peer": end(each.peer),
            "state": each.state,
            "queued": each.queued,
            "retransmits": each.retransmits,
            "idle": each.idle,
        }
        for each in ordered[:MOST_SOCKETS]
    ]


def within(each: Connection) -> bool:
    return each.peer[0] == each.local[0] or each.peer[0].startswith("127.") or each.peer[0] == "::1"


def end(place: tuple[str, int]) -> str:
    return f"[{place[0]}]:{place[1]}" if ":" in place[0] else f"{place[0]}:{place[1]}"


def last_words(run_dir: str) -> dict[int, float]:
    """Return the wall-clock time of the last log output by local rank."""
    found: dict[int, float] = {}
    try:
        with log_folder(run_dir) as (logs, _):
            for local_rank, path in rank_folders(logs):
                for stream in STREAMS:
                    try:
                        at = os.stat(f"{path}/{stream}", dir_fd=logs, follow_symlinks=False).st_mtime
                    except OSError:
                        continue
                    found[local_rank] = max(at, found.get(local_rank, 0.0))
    except OSError:
        pass
    return found
