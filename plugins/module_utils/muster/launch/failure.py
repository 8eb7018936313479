"""Find the rank of a launch that failed first, across all nodes, and the cause.

The torchrun of every node reports a "root cause". On all nodes but one, this is only a rank that lost the connection to
its peer. This module orders the evidence of all nodes by time, ignores consequences of other failures, and reports the
earliest remaining failure as the cause.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .agent_log import closed, exit_codes
from .endings import ASKED, EXIT, NODE_WORDS, PEER, STOPPED, UNKNOWN_WORD, Ending
from .launchers import TORCHRUN
from .tracebacks import (
    CASCADE,
    LINE_LENGTH,
    OWN_FAULT,
    RANK_PREFIX,
    ends_with_traceback,
    exception_line,
    fatal_error,
    is_cascade,
    last_traceback,
    marked_lines,
    recorded_traceback,
    uncaught_traceback,
)
from .unit import UnitEnd

if TYPE_CHECKING:
    from .messages import DiskFacts, RankState, Result

# nccl2 of torch 2.15 prints this line on a CUDA error of the rank itself, then fails like the victims of other ranks.
GPU_FAILED = r"CUDA error during (?:start|end) event query:"
ABORTED = re.compile(
    rf"(?:what\(\):|watchdog thread terminated with exception:|{GPU_FAILED}"
    r"|Aborting process on rank \d+ due to(?! error - timeout watchdog)) +(?P<why>.+)"
)
DISK_FULL = 64 * 1024  # bytes free; with less, no line can be appended to a log
NO_SPACE = re.compile(r"No space left on device|Errno 28")


@dataclass
class NodeReport:
    """The state of one node after the end of a launch.

    clock_offset: the node's clock minus the controller's monotonic clock; used to order the failures of all nodes.
    last_answer: controller time of the node's last answer. ended: the result that the unit's main process wrote, or
    None. errors: torch's error.json by local rank. stderr: the end of each rank's stderr by local rank. disk: None
    until the disk was checked. launcher: the program that ran the ranks, as named in messages. codes: exit codes by
    local rank that do not come from the launcher's log.
    """

    node: str
    reached: bool = True
    lost: bool = False
    lost_why: str = ""
    last_answer: float = 0.0
    clock_offset: float = 0.0
    ended: Result | None = None
    unit: UnitEnd = field(default_factory=UnitEnd)
    ranks: list[RankState] = field(default_factory=list)
    first_rank: int = 0
    errors: dict[str, Any] = field(default_factory=dict)
    agent_log: str = ""
    stderr: dict[str, str] = field(default_factory=dict)
    disk: DiskFacts | None = None
    launcher: str = TORCHRUN.name
    codes: dict[int, int] = field(default_factory=dict)

    @property
    def is_torchrun(self) -> bool:
        return self.launcher == TORCHRUN.name

    def said_by(self, local: int) -> str:
        """Return the stderr of a rank.

        If the rank has no log of its own, return the lines in the node's log that are marked with the rank.
        """
        own = self.stderr.get(str(local), "")
        return own if own or self.is_torchrun else marked_lines(self.agent_log, self.first_rank + local)

    @property
    def disk_is_full(self) -> bool:
        return self.disk is not None and self.disk["free"] < DISK_FULL

    def controller_time(self, at: float | None) -> float:
        """Convert a timestamp of the node to controller time.

        If there is no timestamp, return the time of the node's last answer.
        """
        return at - self.clock_offset if at else self.last_answer


@dataclass(frozen=True)
class Failure:
    """A failure on a node. `rank` is None if the launcher, the unit or the node itself failed. `when`: controller time.

    by_launcher: whether the launcher's log shows that the launcher stopped this rank, so that this failure is not the
    first. signal: name of the signal that ended the rank.
    """

    node: str
    when: float
    summary: str
    ending: Ending
    rank: int | None = None
    local_rank: int | None = None
    traceback: str = ""
    cascade: bool = False
    by_launcher: bool = False
    signal: str = ""

    @property
    def where(self) -> str:
        return self.node if self.rank is None else f"rank {self.rank} ({self.node}, local rank {self.local_rank})"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_failure(reports: list[NodeReport], stop_began: float) -> tuple[Failure | None, list[Failure]]:
    """Return the first failure, which is the cause, and all other failures in order of time.

    stop_began: controller time at which the supervisor began to stop the launch. Connections lost after that time are
    consequences of the stop.
    """
    failures = [failure for report in reports for failure in node_failures(report, stop_began)]
    failures = [failure for failure in failures if not (failure.cascade and failure.when > stop_began + 0.5)]
    if not failures:
        return None, []
    # Among consequences, a stop because of another node is the most useful: it names that node.
    ordered = sorted(failures, key=lambda one: (one.cascade, one.ending is not Ending.PEER, one.by_launcher, one.when))
    return ordered[0], sorted(ordered[1:], key=lambda one: one.when)


def node_failures(report: NodeReport, stop_began: float) -> list[Failure]:
    if not report.reached:
        return []
    failures = rank_failures(report)
    if report.lost:
        summary = f"stopped responding{': ' + report.lost_why if report.lost_why else ''}"
        failures.append(Failure(report.node, report.last_answer, summary, Ending.NODE))
    end = end_of_unit(report, stop_began)
    # After a rank's failure torchrun exits with 1 and a command with any code: that code adds nothing to the failure.
    code = (report.ended or {}).get("code") or 0
    follows = code == 1 or (code > 0 and not report.is_torchrun)
    if end is not None and not (failures and end.ending is Ending.AGENT and follows):
        failures.append(end)
    return failures


def rank_failures(report: NodeReport) -> list[Failure]:
    failures = []
    codes = {**exit_codes(report.agent_log), **report.codes}
    speechless = first_gone_on_full_disk(report)
    gone = {rank["local_rank"]: rank["gone_at"] for rank in report.ranks}
    for local in sorted(set(codes) | {int(key) for key in report.errors} | set(gone)):
        code = codes.get(local)
        stderr = report.said_by(local)
        traceback = recorded_traceback(report.errors.get(str(local))) or uncaught_traceback(stderr)
        if not traceback and (code == 1 or (code is None and ends_with_traceback(stderr))):
            traceback = last_traceback(stderr)  # Python exits with 1 after an uncaught exception
        if not exception_line(traceback):  # truncated: it has frames, but no exception
            traceback = ""
        if code == 0 or (code is None and not traceback and local != speechless):
            continue
        when = report.controller_time(gone.get(local) or (report.ended or {}).get("ended_at"))
        failures.append(rank_failure(report, local, code, traceback, when))
    return failures


def first_gone_on_full_disk(report: NodeReport) -> int | None:
    """Return the local rank that exited first, if neither the rank nor torchrun could log the reason to a full disk."""
    gone = [(rank["gone_at"], rank["local_rank"]) for rank in report.ranks if rank["gone_at"]]
    if not report.disk_is_full or not gone or (report.ended or {}).get("code") in (None, 0):
        return None
    return int(min(gone)[1])


def rank_failure(report: NodeReport, local: int, code: int | None, traceback: str, when: float) -> Failure:
    stderr = report.said_by(local)
    if traceback:
        # Independent of the exit code: after an exception, a rank may crash or be stopped during its cleanup.
        ending, summary, cascade = Ending.EXCEPTION, exception_line(traceback), is_cascade(traceback)
        cascade = cascade and not re.search(GPU_FAILED, stderr)
    elif code == -signal.SIGTERM and local in closed(report.agent_log):
        summary = "was stopped by its launcher (SIGTERM)"
        rank = report.first_rank + local
        return Failure(
            report.node, when, summary, Ending.SIGNAL, rank, local, cascade=True, by_launcher=True, signal="SIGTERM"
        )
    elif code == -signal.SIGTERM:
        ending, summary, cascade = Ending.SIGNAL, "was stopped (SIGTERM)", True
    elif code is not None and code < 0:
        said = ABORTED.findall(stderr)
        why = f": {said[-1].strip()[:LINE_LENGTH]}" if said else hint_of_signal(-code)
        ending, summary, traceback = Ending.SIGNAL, f"was killed by {signal_name(-code)}{why}", fatal_error(stderr)
        cascade = bool(said) and CASCADE.search(said[-1]) is not None and not OWN_FAULT.search(said[-1])
    else:
        # Only the end of its output counts; the rank has handled earlier exceptions.
        traceback = last_traceback(stderr) if ends_with_traceback(stderr) else ""
        plain = RANK_PREFIX.sub("", stderr).rstrip()
        last = exception_line(traceback) or plain.rpartition("\n")[2].strip()
        ending, summary = Ending.EXIT, f"exited with code {code}{': ' + last if last else ''}"
        cascade = bool(traceback) and is_cascade(traceback)
        if report.disk is not None and report.disk_is_full:
            summary = f"ended while the disk of the run directory was full ({report.disk['path']})"
    by = signal_name(-code) if ending is Ending.SIGNAL and code is not None else ""
    rank = report.first_rank + local
    return Failure(report.node, when, summary, ending, rank, local, traceback, cascade, signal=by)


def hint_of_signal(number: int) -> str:
    hints = {
        signal.SIGKILL: " (by the OOM killer if journalctl -k shows an OOM kill, otherwise by a user or process)",
        signal.SIGSEGV: " (a crash in native code)",
        signal.SIGBUS: " (often because /dev/shm or the disk of a mapped file is full)",
    }
    return hints.get(signal.Signals(number), "") if number in set(signal.Signals) else ""


def end_of_unit(report: NodeReport, stop_began: float) -> Failure | None:
    """Return the failure of the systemd unit itself, if it failed."""
    ended = report.ended
    if ended is None:
        return end_without_words(report)
    at = report.controller_time(ended.get("ended_at"))
    word, code = ended.get("reason"), ended.get("code")
    if word == EXIT and isinstance(code, int):
        return end_of_agent(report, at, code)
    if word in (STOPPED, ASKED, PEER) and at >= stop_began:
        return None
    ending, summary = NODE_WORDS.get(str(word), UNKNOWN_WORD)
    words = {"reason": word, "code": code, "error": ended.get("error"), "launcher": report.launcher}
    return Failure(report.node, at, summary.format(**words), ending, cascade=word == PEER)


NO_MANAGER = "no-manager"  # as in muster_node/launch/state.py


def end_without_words(report: NodeReport) -> Failure | None:
    """Return the failure that systemd reports for a unit whose main process did not write a result."""
    at, result = report.last_answer, report.unit.result
    if result == "timeout" and report.unit.at_limit:
        return Failure(report.node, at, NODE_WORDS["limit"].summary, Ending.LIMIT)
    if result == "timeout":
        return Failure(report.node, at, f"{NODE_WORDS[STOPPED].summary} and did not end in time", Ending.UNIT)
    if result == NO_MANAGER:
        return Failure(report.node, at, "the launch ended because the user's systemd instance ended", Ending.UNIT)
    if not report.unit.failed and result in ("", "success"):
        return None
    if result == "oom-kill":
        return Failure(report.node, at, "the OOM killer ended the launch", Ending.UNIT)
    how = signal_name(report.unit.status) if result == "signal" else f"result {result}"
    return Failure(report.node, at, f"the launch's unit was killed from outside ({how})", Ending.UNIT)


def end_of_agent(report: NodeReport, at: float, code: int) -> Failure | None:
    """Return the failure of the launcher itself, if it failed."""
    if code == 0:
        return None
    if code < 0:
        name = signal_name(-code)
        summary = f"{report.launcher} itself was killed by {name}"
        return Failure(report.node, at, summary, Ending.AGENT, signal=name)
    traceback = last_traceback(report.agent_log)
    cascade = bool(traceback) and is_cascade(traceback)
    text = exception_line(traceback) or NODE_WORDS[EXIT].summary.format(code=code, launcher=report.launcher)
    if NO_SPACE.search(report.agent_log):
        text = f"the disk of the run directory is full ({text})"
    return Failure(report.node, at, text, Ending.AGENT, traceback=traceback, cascade=cascade)
