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

# What a rank says when a *peer* went away or was stopped. Wording of torch 2.13 with Gloo (recorded in
# tests/unit/failure), of torch's c10d store, and of NCCL 2.2x ("remote process exited or there was a network error").
CASCADE = re.compile(
    r"Connection (closed|reset|refused|aborted)( by peer)?"
    r"|Broken pipe"
    r"|gloo/transport/tcp"
    r"|ncclRemoteError|remote process exited|ncclSystemError"
    r"|DistNetworkError|DistStoreError|RendezvousConnectionError|RendezvousTimeoutError"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (recv|send)"
    r"|failed to recv, got 0 bytes|recvValue failed|sendBytes failed"
    r"|SignalException: Process \d+ got signal: 15"
)
AGENT_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
AGENT_CLOSES = re.compile(r"Sending process \d+ closing signal|failed \(exitcode: ")
SUMMARY_FAILURE = re.compile(r"rank\s+: \d+ \(local_rank: (?P<local>\d+)\)\s+exitcode\s+: (?P<code>-?\d+) \(pid: \d+\)")
RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
TRACEBACK_START = "Traceback (most recent call last):"
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
    """The last Python traceback in a rank's stderr, without torch's [rankN] prefixes; '' when there is none."""
    plain = RANK_PREFIX.sub("", text)
    start = plain.rfind(TRACEBACK_START)
    if start < 0:
        return ""
    lines = plain[start:].splitlines()
    kept = lines[:1]
    for line in lines[1:]:
        kept.append(line)
        if line and not line.startswith(" "):  # the exception itself ends the block
            break
    return "\n".join(kept)


def exception_line(traceback: str) -> str:
    lines = [line for line in traceback.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


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
    failures = [failure for report in reports for failure in node_failures(report)]
    failures = [failure for failure in failures if not (failure.cascade and failure.when > stop_began + 0.5)]
    if not failures:
        return None, []
    ordered = sorted(failures, key=lambda one: (one.cascade, one.when))
    return ordered[0], sorted(ordered[1:], key=lambda one: one.when)


def node_failures(report: NodeReport) -> list[Failure]:
    if not report.reached:
        return []
    failures = rank_failures(report)
    if report.lost:
        summary = f"stopped answering{': ' + report.lost_why if report.lost_why else ''}"
        failures.append(Failure(report.node, report.last_answer, summary, "node"))
    end = end_of_unit(report)
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
        traceback = recorded_traceback(report.errors.get(str(local))) or last_traceback(
            report.stderr.get(str(local), "")
        )
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
    if code is not None and code < 0 and -code != signal.SIGTERM:
        kind, summary, cascade = "signal", f"was killed by {signal_name(-code)}{hint_of_signal(-code)}", False
    elif code == -signal.SIGTERM:
        kind, summary, cascade = "signal", "was told to stop (SIGTERM)", True
    elif traceback:
        kind, summary = "exception", exception_line(traceback)
        cascade = CASCADE.search(exception_line(traceback)) is not None
    else:
        last = [line for line in RANK_PREFIX.sub("", stderr).splitlines() if line.strip()]
        kind, summary, cascade = "exit", f"exited with code {code}{': ' + last[-1].strip() if last else ''}", False
        if report.disk.get("free", DISK_FULL) < DISK_FULL:
            summary = f"ended when the disk of its run directory was full ({report.disk['path']})"
    return Failure(report.node, when, summary, kind, report.first_rank + local, local, traceback, cascade)


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


def end_of_unit(report: NodeReport) -> Failure | None:
    """How the unit itself ended, where that is a failure."""
    ended, unit = report.ended, report.unit
    at = ((ended or {}).get("ended_at") or report.last_answer + report.clock_offset) - report.clock_offset
    result = unit.get("Result", "")
    if result == "timeout":
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
    if ended["reason"] == "stopped" or ended["code"] == 0:
        return None
    if ended["code"] < 0:
        return Failure(report.node, at, f"torchrun itself was killed by {signal_name(-ended['code'])}", "agent")
    cascade = CASCADE.search(exception_line(last_traceback(report.agent_log))) is not None
    text = exception_line(last_traceback(report.agent_log)) or f"torchrun exited with code {ended['code']}"
    if NO_SPACE.search(report.agent_log):
        text = f"the disk of the run directory is full ({text})"
    return Failure(report.node, at, text, "agent", traceback=last_traceback(report.agent_log), cascade=cascade)
