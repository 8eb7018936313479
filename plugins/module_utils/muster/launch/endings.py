"""The possible outcomes of a launch, in one table for the watch, the search for the first failure, and the verdict.

A new outcome needs a row in this table and code that detects the outcome: in the watch, in the evaluation of node
reports, or in the program on the node (muster_node/launch/running.py), whose reason word is listed in NODE_WORDS.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, NoReturn

from ..verdict.check import Check
from ..verdict.commands import playbook
from .occupied import TAKEN


class Ending(Enum):
    """The outcomes of a launch, each with the check that reports it."""

    FINISHED = Check(
        "launch.ended",
        seen="stand-in",
        reads="the exit states of the ranks and of the launch's unit",
        fires="never; the check passes for a node whose ranks all exited with code 0",
    )
    FAILED = Check(
        "launch.failed",
        seen="stand-in",
        reads="the exit state of torchrun",
        fires="torchrun ended and no reason was found (fail)",
        fix="Read the log named in the finding",
    )
    EXCEPTION = Check(
        "launch.exception",
        seen="sandbox",
        reads="the standard error of the ranks, earliest failure first",
        fires="a rank ended with a Python exception, whose last line is quoted (fail)",
        fix="Read the log named in the finding",
    )
    SIGNAL = Check(
        "launch.signal",
        seen="sandbox",
        reads="the exit codes of the ranks",
        fires="a rank was killed by a signal, for example SIGKILL by the OOM killer (fail)",
        fix="Read the log named in the finding and the node's kernel log",
    )
    EXIT = Check(
        "launch.exit",
        seen="stand-in",
        reads="the exit codes of the ranks",
        fires="a rank exited with a code other than 0 (fail)",
        fix="Read the log named in the finding",
    )
    AGENT = Check(
        "launch.agent",
        seen="sandbox",
        reads="the exit code and the log of torchrun",
        fires="torchrun itself failed on the node (fail)",
        fix="Read the log named in the finding",
    )
    UNIT = Check(
        "launch.unit",
        seen="sandbox",
        reads="the state of the launch's unit",
        fires="systemd or the kernel ended the unit (fail)",
        fix="Read the journal of the unit (journalctl -u)",
    )
    TAKEN = TAKEN
    LEASE = Check(
        "launch.lease",
        seen="stand-in",
        reads="the lease that the supervisor renews",
        fires="the lease expired: the controller stopped or lost its connection (fail)",
        fix="Launch again; a detached launch continues without the controller",
    )
    PEER = Check(
        "launch.peer",
        seen="sandbox",
        reads="the heartbeats that the nodes of a detached launch exchange, and the outcome that each node reports",
        fires="the launch failed on another node, or another node sent no heartbeat for 20 s (fail)",
        fix="Check the node named in the finding and the network between the nodes",
    )
    LIMIT = Check(
        "launch.limit",
        seen="sandbox",
        reads="the time limit of a detached launch",
        fires="the time limit was reached (fail)",
        fix="Increase launch_time_limit",
    )
    NODE = Check(
        "launch.node",
        seen="sandbox",
        reads="the connection to the node while the launch runs",
        fires="the node stopped responding (fail)",
        fix="Check the node, then launch again",
    )
    STALLED = Check(
        "launch.stalled",
        seen="sandbox",
        reads="the output and the stacks of all ranks",
        fires=("no rank has printed a line for launch_stall_timeout; the rank that blocks the others is named (fail)"),
        fix="Read the stacks in the verdict",
    )
    INTERRUPTED = Check(
        "launch.interrupted",
        seen="stand-in",
        reads="the supervisor itself",
        fires="the launch was stopped early by a signal or by launch_stop (unknown)",
        fix="Launch again",
    )
    DETACHED = Check(
        "launch.detached",
        seen="sandbox",
        reads="the supervisor itself",
        fires="the launch continues without the supervisor, so its result is not known yet (unknown)",
        fix=f"Follow it with {playbook('playbooks/launch.yml', launch_attach='ID')}",
    )

    @property
    def check(self) -> Check:
        return self.value


CHECKS = tuple(ending.check for ending in Ending)
# The outcomes that a supervisor can decide; the others are read from the reports of the nodes afterwards.
Decided = Literal[
    Ending.FINISHED, Ending.FAILED, Ending.NODE, Ending.STALLED, Ending.INTERRUPTED, Ending.DETACHED, Ending.TAKEN
]


class NodeOutcome(NamedTuple):
    """The outcome of the launch for a reason word from a node that means failure, and a sentence that describes the
    outcome.
    """

    ending: Ending
    summary: str


ASKED = "asked"  # a user requested the stop (launch_stop, Ctrl-C), and the ranks ended or were killed
EXIT = "exit"  # torchrun exited; successfully if the code is 0
STOPPED = "stopped"  # the unit was stopped, by the supervisor or from outside
PEER = "peer"  # the launch was stopped here because of another node, which usually reports the cause
# By the `reason` that the program on a node stores when the launch has ended; a test compares both tables.
NODE_WORDS = {
    EXIT: NodeOutcome(Ending.AGENT, "{launcher} exited with code {code}"),
    STOPPED: NodeOutcome(
        Ending.UNIT, "the launch's unit was stopped from outside (systemctl stop, or a shutdown of the node)"
    ),
    ASKED: NodeOutcome(Ending.INTERRUPTED, "the launch was stopped by a user (launch_stop or Ctrl-C)"),
    "exec": NodeOutcome(Ending.AGENT, "{launcher} could not be started: {error}"),
    "lease": NodeOutcome(Ending.LEASE, "the launch's lease expired: the controller stopped or lost its connection"),
    PEER: NodeOutcome(Ending.PEER, "the launch was stopped here because of another node: {error}"),
    "limit": NodeOutcome(Ending.LIMIT, "the launch reached its time limit (launch_time_limit)"),
}
UNKNOWN_WORD = NodeOutcome(Ending.FAILED, "the node reports an unknown outcome: {reason!r:.60}")


def has_failed(ending: Decided) -> bool:
    """Return whether the launch failed.

    For a failed launch, Muster searches for the cause, and another attempt might succeed.
    """
    match ending:
        case Ending.FAILED | Ending.NODE | Ending.STALLED:
            failed = True
        case Ending.FINISHED | Ending.INTERRUPTED | Ending.DETACHED | Ending.TAKEN:
            failed = False
        case other:
            never(other)
    return failed


def never(value: NoReturn) -> NoReturn:
    """Exhaustiveness guard for `match`: mypy reports every `match` that has no case for an outcome."""
    raise AssertionError(f"no case for {value}")
