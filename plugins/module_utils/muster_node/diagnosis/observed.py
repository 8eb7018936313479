"""Reads the stack and torch's flight recorder of a rank from the socket that hook.py opens. If the rank does not
answer, py-spy reads the stack. Without py-spy, only the process state from the kernel is available.

This code runs as the training user. Answers are untrusted, because the rank's own code could answer instead of the
hook. Therefore an answer is accepted only from the rank's process and within limits of time and size. It is treated as
text.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from ..launch import foreign
from ..tools import files, process
from ..tools.run import run
from . import hook

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

SECONDS = 0.5  # for the answers of all ranks of a node
SPY_SECONDS = 1.0  # for py-spy, for all ranks together
SPIED = 4  # ranks at most
MOST = 4_000_000  # bytes: torch keeps 2000 entries of some 500
CHUNK = 1 << 16
MOST_LINE = 200
MOST_LEFT = 64  # ranks
MOST_ENTRIES = 16
MOST_WORD = 60
HOOKED = ("nccl2", "nccl-lazy")  # recorded by torch's hook: an entry is scheduled, then completed
DEFAULT = "default_pg"  # torch's description of the group of all ranks
NUMBER = re.compile(r"\d{1,15}")
# py-spy's format of a stack: `    train (/srv/train.py:12)`, below `Thread 7 (idle): "MainThread"`.
SPY_THREAD = re.compile(r"Thread \S+ \(.*\): \"(.*)\"")
SPY_LINE = re.compile(r"^ {4}(\S.*) \((.+):(\d+)\)$")
MOST_SPIED = 1 << 18  # bytes
# py-spy's errors for EPERM and EACCES.
REFUSED = re.compile(r"[Pp]ermission [Dd]enied|Operation not permitted|os error (?:1|13)\b")
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
NO_STACK = "the main thread is not running Python code"
SILENT = {
    "T": "the rank is stopped by a signal (state T)",
    "t": "the rank is stopped by a debugger (state t)",
    "D": "the rank is in uninterruptible sleep (state D)",
    "Z": "the rank is a zombie (state Z)",
}


def observed(pid: int, folder: str) -> Json:
    """Return {stack, stack_why, flight, flight_why} of one rank. folder: contains the launch's sockets; "" for none."""
    return all_observed([pid], folder)[pid]


def all_observed(pids: Iterable[int], folder: str, *, finished: bool = True, spy: bool = True) -> dict[int, Json]:
    """Observe several ranks in parallel; see `observed`. finished: include finished collectives. spy: use py-spy for
    ranks that do not answer."""
    pids = list(pids)
    said = answers(pids, folder, hook.ALL if finished else hook.NOW) if folder else {}
    found = {pid: read(said[pid]) if pid in said else silent(pid, folder) for pid in pids}
    until = time.monotonic() + SPY_SECONDS
    for pid in [pid for pid in pids if pid not in said and process.runs(pid)][: SPIED if spy else 0]:
        stack, refused = spied(pid, until - time.monotonic())
        if stack:
            found[pid].update(stack=stack, stack_why="")
        elif refused:
            found[pid]["stack_why"] += f"; {refused}"
    return found


def silent(pid: int, folder: str) -> Json:
    """Return the reason why a rank does not answer, and the flight recorder that the rank wrote at exit."""
    seen = process.status(pid)
    if seen is None or seen.state in process.GONE:
        why, left = "the rank has exited", last_word(pid, folder)
    else:
        never = f"state {seen.state}: started without launch_observe, or a C call holds the interpreter lock"
        why, left = SILENT.get(seen.state, f"the rank does not respond ({never})"), b""
    flight, flight_why = recorded(left) if left else (None, why)
    return {"stack": [], "stack_why": why, "flight": flight, "flight_why": flight_why}


def left(table: list[Json], folder: str) -> list[Json]:
    """Return the flight recorders that ended ranks wrote at exit; see RankLeft in evidence.py."""
    gone = [rank for rank in table if rank["gone_at"] is not None]
    words = ((rank["rank"], last_word(rank["pid"], folder)) for rank in gone[:MOST_LEFT])
    flights = ((rank, recorded(word)[0]) for rank, word in words if word)
    return [{"rank": rank, "flight": flight} for rank, flight in flights if flight]


def last_word(pid: int, folder: str) -> bytes:
    try:
        with files.folder(folder) as there:
            return files.read(f"{pid}.last", most=hook.LAST, within=there, owner=os.fstat(there).st_uid)
    except OSError:
        return b""


# ---------------------------------------------------------------- the sockets


def answers(pids: Iterable[int], folder: str, asked: bytes) -> dict[int, bytes]:
    """Send a request to ranks. Return the answers from the expected processes that arrive in time, by PID."""
    until = time.monotonic() + SECONDS
    called = {asking: pid for pid in pids if (asking := call(pid, folder, asked))}
    said = {asking: bytearray() for asking in called}
    over: dict[int, bytes] = {}
    poll = select.poll()
    by_number = {asking.fileno(): asking for asking in called}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while by_number and (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            asking = by_number[number]
            chunk = part(asking)
            said[asking] += chunk
            if not chunk or len(said[asking]) > MOST:
                over[called[asking]] = bytes(said[asking][:MOST])
                poll.unregister(number)
                del by_number[number]
    for asking in called:
        asking.close()
    return {pid: answer for pid, answer in over.items() if answer}


def call(pid: int, folder: str, asked: bytes) -> socket.socket | None:
    """Connect to a rank, send the request and return the socket. If the rank is a shell, connect to its child."""
    for one in (pid, *process.children(pid)):
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            asking.setblocking(False)  # do not wait for a process that accepts no connections
            asking.connect(f"{folder}/{one}")
            who, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if who == one and uid == process.user_id(one):
                asking.sendall(asked)
                return asking
        except OSError:
            asking.close()
            continue
        asking.close()
    return None


def part(asking: socket.socket) -> bytes:
    try:
        return asking.recv(CHUNK)
    except OSError:
        return b""


# ---------------------------------------------------------------- answers


def read(answer: bytes) -> Json:
    """Parse an answer from hook.py."""
    stack, has_flight, flight = answer.partition(hook.FLIGHT.encode())
    if has_flight:
        found, flight_why = recorded(flight)
    else:
        stack, _, why = answer.partition(hook.NONE.encode())
        found, flight_why = None, text(why.decode("utf-8", "replace"), MOST_LINE)
    lines = [text(line, MOST_LINE) for line in stack.decode("utf-8", "replace").split("\n")[: hook.FRAMES]]
    lines = [line for line in lines if line]
    return {"stack": lines, "stack_why": "" if lines else NO_STACK, "flight": found, "flight_why": flight_why}


def recorded(answer: bytes) -> tuple[Json | None, str]:
    """Return {group, enqueued, last} of the default process group. If that group has no entries, use the group of the
    newest entry."""
    known = foreign.parsed(hook.newest(answer))
    if not isinstance(known, dict):
        return None, "the flight recorder is not valid JSON"
    entries = [one for one in listed(known.get("entries")) if isinstance(one, dict)]
    of_all = [one for one in entries if DEFAULT in listed(one.get("process_group"))]
    mine = of_all or [one for one in entries[-1:] for one in entries if group_of(one) == group_of(entries[-1])]
    status = known.get("pg_status")
    status = status.get("0") if isinstance(status, dict) else None
    enqueued = whole(status.get("last_enqueued_collective")) if isinstance(status, dict) else 0
    # The status can count point-to-point calls as well. Each entry has the number of collectives.
    enqueued = max((whole(one.get("collective_seq_id")) for one in mine), default=enqueued)
    last = [collective(one) for one in mine[-MOST_ENTRIES:]]
    if not enqueued and not last:
        return None, "the flight recorder is empty"
    return {"group": group_of(mine[-1]) if mine else DEFAULT, "enqueued": enqueued, "last": last}, ""


def collective(entry: Json) -> Json:
    sequence = entry.get("p2p_seq_id" if entry.get("is_p2p") is True else "collective_seq_id")
    library, _, operation = text(entry.get("profiling_name"), MOST_WORD).partition(":")
    state = text(entry.get("state"), MOST_WORD)
    return {
        "sequence": whole(sequence),
        "operation": operation or "?",
        "sizes": text(str(entry.get("input_sizes", ""))[:MOST_WORD], MOST_WORD),
        "types": text(str(entry.get("input_dtypes", ""))[:MOST_WORD], MOST_WORD),
        "state": "started" if library in HOOKED and state == "scheduled" else state,
    }


def group_of(entry: Json) -> str:
    return text(next(reversed([one for one in listed(entry.get("process_group")) if one]), ""), MOST_WORD)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def whole(value: Any) -> int:
    """Convert a count, which torch writes as a number or a string. -1 (none so far) becomes 0."""
    return int(str(value)) if NUMBER.fullmatch(str(value)) else 0


def text(value: Any, most: int) -> str:
    """Return the printable characters of a text, on one line."""
    return "".join(each for each in value if each.isprintable())[:most] if isinstance(value, str) else ""


# ---------------------------------------------------------------- py-spy


def spied(pid: int, seconds: float) -> tuple[list[str], str]:
    """Return the main thread's stack from py-spy, and the reason if py-spy was not permitted to read it. Return [] if
    py-spy is not in the rank's PATH. With --nonblocking, py-spy does not pause the rank, so stopped ranks stay
    stopped."""
    spy = shutil.which("py-spy", path=process.environment(pid).get("PATH", ""))
    if not spy or seconds <= 0:
        return [], ""
    asked = run(spy, "dump", "--nonblocking", "--pid", str(pid), seconds=seconds, most=MOST_SPIED)
    found: list[str] = []
    is_main = False
    for line in asked.text.splitlines():
        if thread := SPY_THREAD.match(line):
            is_main = thread[1] == "MainThread"
        elif is_main and (frame := SPY_LINE.match(line)):
            found.append(text(f'  File "{frame[2]}", line {frame[3]} in {frame[1]}', MOST_LINE))
    return found[: hook.FRAMES], "" if found or not REFUSED.search(asked.aside) else why_refused()


def why_refused() -> str:
    scope = (files.text(YAMA, most=10) or "").strip()
    if scope in ("", "0"):
        return "py-spy has no permission to read the process"
    return f"py-spy has no permission to read the process (kernel.yama.ptrace_scope is {scope})"
