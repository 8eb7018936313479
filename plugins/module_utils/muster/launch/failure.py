"""Which rank failed first, over all nodes of a launch, and why.

Every node's torchrun names a "root cause" of its own, and on all nodes but one that is a victim: the rank whose peer
hung up. Here all nodes' evidence is put on one time line, what only follows from another failure is set aside, and the
earliest of the rest is the cause.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Any

# What a rank says when a *peer* went away or was stopped, in words that only torch's own libraries use: Gloo of torch
# 2.13 (recorded in tests/unit/launch), torch's c10d store, NCCL 2.2x.
CASCADE = re.compile(
    r"gloo/transport/tcp"
    r"|ncclRemoteError|remote process exited|Watchdog caught collective operation timeout"
    r"|DistNetworkError|DistStoreError|RendezvousConnectionError|RendezvousTimeoutError"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (recv|send)"
    r"|failed to recv, got 0 bytes|recvValue failed|sendBytes failed"
    r"|SignalException: Process \d+ got signal: 15"
)
# Words of everybody's network errors. They tell of a peer only where torch was talking; the script's own database or
# download may be away too, and that is the rank's own failure.
CONNECTION = re.compile(r"[Cc]onnection (closed|reset|refused|aborted|abort)|Broken pipe")
TALKING = re.compile(r"torch/(distributed|autograd|nn/parallel)/")
# What these libraries say of a fault that is here: a port that is taken, an interface that is not there, no room in
# /dev/shm, ranks that disagree about a collective.
OWN_FAULT = re.compile(r"EADDRINUSE|enforce fail at|No space left on device|shared memory segment")
AGENT_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
AGENT_CLOSES = re.compile(r"Sending process \d+ closing signal|failed \(exitcode: ")
SUMMARY_FAILURE = re.compile(r"rank\s+: \d+ \(local_rank: (?P<local>\d+)\)\s+exitcode\s+: (?P<code>-?\d+) \(pid: \d+\)")
RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
# torch's hook writes an exception that nobody caught with its rank before every line; "[rank0]:[W..." is a log line.
UNCAUGHT_LINE = re.compile(r"^\[rank\d+\]: (.*)$")
HEADING = "Traceback (most recent call last):"
TRACEBACK_START = re.compile(rf"^(  \+ Exception Group )?{re.escape(HEADING)}$")
SYNTAX_ERROR_START = re.compile(r'^  File ".+", line \d+$')
CHAIN = re.compile(
    r"^(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)
GROUP_LINE = re.compile(r"^  [|+] ?", re.MULTILINE)
FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+', re.MULTILINE)
# What may follow a traceback and is no part of its message.
AFTER_TRACEBACK = re.compile(
    r"^(Exception ignored|Exception in thread|Fatal Python error|terminate called|\[?(rank\d+\]:)?\[?[WEIF]\d{4} "
    r"|\S+:\d+: \w*Warning: )"
)
ABORTED = re.compile(r"(?:what\(\):|watchdog thread terminated with exception:) +(?P<why>.+)")
MESSAGE_LINES = 20  # of one exception's message, shown
LINE_LENGTH = 400  # of one exception in a summary
DISK_FULL = 64 * 1024  # bytes free, below which a log takes no line any more
NO_SPACE = re.compile(r"No space left on device|Errno 28")


@dataclass
class NodeReport:
    """What is known of one node when a launch has ended.

    clock_offset: the node's clock minus the controller's, seconds. last_answer: controller time.
    ended: what the unit's main process wrote ({reason, code?, ended_at, error?}) or None when it could not.
    ranks: [{rank, local_rank, pid, gone_at, state?, cpu?, wchan?}]; gone_at in the node's time. errors: torch's
    error.json by local rank. stderr: the end of each rank's stderr by local rank.
    """

    node: str
    reached: bool = True
    lost: bool = False
    lost_why: str = ""
    last_answer: float = 0.0
    clock_offset: float = 0.0
    ended: dict[str, Any] | None = None
    unit: dict[str, str] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    first_rank: int = 0
    errors: dict[str, Any] = field(default_factory=dict)
    agent_log: str = ""
    stderr: dict[str, str] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """One failure on one node; `rank` is None for the agent, the unit or the node itself. `when`: controller time."""

    node: str
    when: float
    summary: str
    kind: str  # exception | signal | exit | agent | unit | node | lease | limit
    rank: int | None = None
    local_rank: int | None = None
    traceback: str = ""
    cascade: bool = False

    @property
    def where(self) -> str:
        return self.node if self.rank is None else f"rank {self.rank} ({self.node}, local rank {self.local_rank})"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_traceback(text: str) -> str:
    """The last Python traceback in a log, with the exceptions that it was chained to; '' when there is none.

    One that nobody caught is preferred: what was only logged, or came from a destructor or a thread, ended nothing.
    """
    return uncaught_traceback(text) or traceback_in(RANK_PREFIX.sub("", text).splitlines())


def uncaught_traceback(text: str) -> str:
    """The exception that ended a rank, where torch's hook marked it as such (after init_process_group); else ''."""
    lines = text.splitlines()
    marked = [index for index, line in enumerate(lines) if UNCAUGHT_LINE.match(line)]
    if not marked:
        return ""
    # Empty lines have no mark; other lines in between come from other threads. An empty line is no end here.
    block = lines[marked[0] : marked[-1] + 1]
    return traceback_in([RANK_PREFIX.sub("", line) or " " for line in block if not line or UNCAUGHT_LINE.match(line)])


def traceback_in(lines: list[str]) -> str:
    starts = [index for index, line in enumerate(lines) if TRACEBACK_START.match(line)]
    before = {index: lines[index - 1] if index else "" for index in starts}
    fatal = [index for index in starts if not before[index].startswith(("Exception ignored", "Exception in thread"))]
    threads = [index for index in starts if before[index].startswith("Exception in thread")]
    begun = fatal or threads or [index for index, line in enumerate(lines) if SYNTAX_ERROR_START.match(line)]
    if not begun:
        return ""
    end = end_of_traceback(lines, begun[-1])
    start = begun.pop()
    while begun and any(CHAIN.match(line) for line in lines[max(start - 2, 0) : start]):
        start = begun.pop()
    return "\n".join(line.rstrip() for line in lines[start:end]).rstrip()


def ends_with_traceback(stderr: str) -> bool:
    lines = (line.rstrip() for line in RANK_PREFIX.sub("", stderr).splitlines())
    return "\n".join(lines).rstrip().endswith(last_traceback(stderr) or "\0")


def end_of_traceback(lines: list[str], start: int) -> int:
    """The line behind a traceback: its frames are indented, then comes the exception, whose message may go on.

    It ends with an empty line at the latest: nothing else tells it from what the rank wrote next.
    """
    end = start + 1
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end]):
        end += 1
    for length, line in enumerate(lines[end:]):
        if length and (
            not line or AFTER_TRACEBACK.match(line) or TRACEBACK_START.match(line) or length >= MESSAGE_LINES
        ):
            return end + length
    return len(lines)


def chained(traceback: str) -> list[tuple[str, str]]:
    """Each exception of a chain, the first raised one first: (the file where it was raised, what it says)."""
    found = []
    for part in CHAIN.split(traceback)[::2]:
        text = part.strip("\n")
        if text.startswith("  + "):
            text = GROUP_LINE.sub("", text)
        lines = text.splitlines()
        said = next((i for i, line in enumerate(lines) if line[:1].strip() and not line.endswith(HEADING)), len(lines))
        frames = FRAME.findall("\n".join(lines[:said]))
        found.append((frames[-1] if frames else "", "\n".join(lines[said:])))
    return found


def is_cascade(traceback: str) -> bool:
    """Whether it only tells that a peer went away. The first exception of a chain decides: the rest follow."""
    file, said = chained(traceback)[0]
    if OWN_FAULT.search(said):
        return False
    return bool(CASCADE.search(said) or (CONNECTION.search(said) and TALKING.search(file)))


def exception_line(traceback: str) -> str:
    """What a traceback comes to, in one line; '' for none.

    Of a chain it is the last exception, which says most of the circumstances, unless that is only the noise of
    clearing up after one of its own.
    """
    if not traceback.strip():
        return ""
    said = [message for _, message in chained(traceback)]
    if not is_cascade(traceback):
        said = [message for message in said if not CASCADE.search(message) or OWN_FAULT.search(message)] or said
    inner = said[-1].rpartition(HEADING + "\n")[2]  # of a worker process, quoted in the message
    lines = [line.strip() for line in inner.splitlines() if line[:1].strip() or line.startswith("\t")]
    if not lines:
        return ""
    line = lines[0]
    if line.endswith(":") and len(lines) > 1 and lines[1][:1].isalnum():
        line += f" {lines[1]}"
    return line if len(line) <= LINE_LENGTH else f"{line[: LINE_LENGTH - 3]}..."


def agent_closes(agent_log: str) -> bool:
    """True as soon as torchrun began to end its ranks: it then waits up to 30 s for each before it says why."""
    return AGENT_CLOSES.search(agent_log) is not None


def exit_codes(agent_log: str) -> dict[int, int]:
    """Exit code (negative: signal) by local rank, as torchrun's own output tells."""
    found = {int(match["local"]): int(match["code"]) for match in SUMMARY_FAILURE.finditer(agent_log)}
    for match in AGENT_FAILED.finditer(agent_log):
        found[int(match["local"])] = int(match["code"])
    return found


def first_failure(reports: list[NodeReport], stop_began: float) -> tuple[Failure | None, list[Failure]]:
    """(the cause, every other failure in order of time).

    stop_began: controller time at which the supervisor began to end the launch. What a rank says after that is the
    stop's own noise, unless it is an exception of its own.
    """
    failures = [failure for report in reports for failure in node_failures(report, stop_began)]
    failures = [failure for failure in failures if not (failure.cascade and failure.when > stop_began + 0.5)]
    if not failures:
        return None, []
    ordered = sorted(failures, key=lambda one: (one.cascade, one.when))
    return ordered[0], sorted(ordered[1:], key=lambda one: one.when)


def node_failures(report: NodeReport, stop_began: float) -> list[Failure]:
    if not report.reached:
        return []
    failures = rank_failures(report)
    if report.lost:
        summary = f"stopped answering{': ' + report.lost_why if report.lost_why else ''}"
        failures.append(Failure(report.node, report.last_answer, summary, "node"))
    end = end_of_unit(report, stop_began)
    # torchrun exits 1 for every failure of a rank: that adds nothing to the rank's own.
    if end is not None and not (failures and end.kind == "agent" and (report.ended or {}).get("code") == 1):
        failures.append(end)
    return failures


def rank_failures(report: NodeReport) -> list[Failure]:
    failures = []
    codes = exit_codes(report.agent_log)
    speechless = first_gone_on_full_disk(report)
    gone = {rank["local_rank"]: rank["gone_at"] for rank in report.ranks}
    for local in sorted(set(codes) | {int(key) for key in report.errors} | set(gone)):
        code = codes.get(local)
        stderr = report.stderr.get(str(local), "")
        traceback = recorded_traceback(report.errors.get(str(local))) or uncaught_traceback(stderr)
        if not traceback and (code == 1 or (code is None and ends_with_traceback(stderr))):
            traceback = last_traceback(stderr)  # 1 is Python's own code for an exception that nobody caught
        if not exception_line(traceback):  # cut short: it has frames, but does not come to its point
            traceback = ""
        if code == 0 or (code is None and not traceback and local != speechless):
            continue
        when = gone.get(local) or (report.ended or {}).get("ended_at") or report.last_answer + report.clock_offset
        failures.append(rank_failure(report, local, code, traceback, when - report.clock_offset))
    return failures


def first_gone_on_full_disk(report: NodeReport) -> int | None:
    """The local rank that ended first where the disk had no room for its last words, nor for torchrun's."""
    gone = [(rank["gone_at"], rank["local_rank"]) for rank in report.ranks if rank["gone_at"]]
    if report.disk.get("free", DISK_FULL) >= DISK_FULL or not gone or (report.ended or {}).get("code") in (None, 0):
        return None
    return int(min(gone)[1])


def rank_failure(report: NodeReport, local: int, code: int | None, traceback: str, when: float) -> Failure:
    stderr = report.stderr.get(str(local), "")
    if traceback:
        # Whatever its exit code: a rank that raised may crash, or be told to stop, while it clears up.
        kind, summary, cascade = "exception", exception_line(traceback), is_cascade(traceback)
    elif code == -signal.SIGTERM:
        kind, summary, cascade = "signal", "was told to stop (SIGTERM)", True
    elif code is not None and code < 0:
        said = ABORTED.findall(stderr)
        why = f": {said[-1].strip()[:LINE_LENGTH]}" if said else hint_of_signal(-code)
        kind, summary, traceback = "signal", f"was killed by {signal_name(-code)}{why}", fatal_error(stderr)
        cascade = bool(said) and CASCADE.search(said[-1]) is not None and not OWN_FAULT.search(said[-1])
    else:
        # What it printed last before it ended itself; an exception further up was dealt with.
        traceback = last_traceback(stderr) if ends_with_traceback(stderr) else ""
        plain = RANK_PREFIX.sub("", stderr).rstrip()
        last = exception_line(traceback) or plain.rpartition("\n")[2].strip()
        kind, summary = "exit", f"exited with code {code}{': ' + last if last else ''}"
        cascade = bool(traceback) and is_cascade(traceback)
        if report.disk.get("free", DISK_FULL) < DISK_FULL:
            summary = f"ended when the disk of its run directory was full ({report.disk['path']})"
    return Failure(report.node, when, summary, kind, report.first_rank + local, local, traceback, cascade)


def fatal_error(stderr: str) -> str:
    """What Python's faulthandler and C++ wrote when a signal ended the process; '' when they wrote nothing."""
    begun = [stderr.rfind(words) for words in ("terminate called after", "Fatal Python error: ")]
    start = min((place for place in begun if place >= 0), default=-1)
    return "" if start < 0 else "\n".join(stderr[start:].partition("\nExtension modules:")[0].strip().splitlines()[:40])


def hint_of_signal(number: int) -> str:
    hints = {
        signal.SIGKILL: ", by the kernel when memory ran out, or by somebody (journalctl -k tells which)",
        signal.SIGSEGV: ", a crash in native code",
        signal.SIGBUS: ", often /dev/shm or a mapped file's disk is full",
    }
    return hints.get(signal.Signals(number), "") if number in set(signal.Signals) else ""


def recorded_traceback(error: Any) -> str:
    """The traceback out of torch's error.json (present only under @record); '' when it is not usable."""
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        return ""
    stack = (message.get("extraInfo") or {}).get("py_callstack")
    return stack.strip() if isinstance(stack, str) else str(message.get("message", ""))


def end_of_unit(report: NodeReport, stop_began: float) -> Failure | None:
    """How the unit itself ended, where that is a failure."""
    ended, unit = report.ended, report.unit
    at = ((ended or {}).get("ended_at") or report.last_answer + report.clock_offset) - report.clock_offset
    result = unit.get("Result", "")
    if (ended["reason"] == "limit") if ended else (result == "timeout"):
        return Failure(report.node, at, "the launch ran into its time limit (launch_time_limit)", "limit")
    if ended is None:
        if unit.get("ActiveState") != "failed" and result in ("", "success"):
            return None
        if result == "oom-kill":
            return Failure(report.node, at, "the kernel ended the launch because memory ran out", "unit")
        how = signal_name(int(unit["ExecMainStatus"])) if result == "signal" else f"result {result}"
        return Failure(report.node, at, f"the launch's unit was killed from outside ({how})", "unit")
    if ended["reason"] == "lease":
        return Failure(
            report.node, at, "nobody renewed the launch's lease: the controller was gone or cut off", "lease"
        )
    if ended["reason"] == "exec":
        return Failure(report.node, at, f"torchrun could not be started: {ended['error']}", "agent")
    if ended["reason"] == "stopped" and at < stop_began:
        what = "the launch's unit was stopped from outside (systemctl stop, or the node shutting down)"
        return Failure(report.node, at, what, "unit")
    if ended["reason"] == "stopped" or ended["code"] == 0:
        return None
    if ended["code"] < 0:
        return Failure(report.node, at, f"torchrun itself was killed by {signal_name(-ended['code'])}", "agent")
    traceback = last_traceback(report.agent_log)
    cascade = bool(traceback) and is_cascade(traceback)
    text = exception_line(traceback) or f"torchrun exited with code {ended['code']}"
    if NO_SPACE.search(report.agent_log):
        text = f"the disk of the run directory is full ({text})"
    return Failure(report.node, at, text, "agent", traceback=traceback, cascade=cascade)
