"""How a launch can end: the one table that the watch, the search for the first failure and the verdict share.

A new way to end is a row here, and the place where it is seen: the watch, the reports of the nodes, or the program on a
node (muster_node/launch/running.py), which has a word for it in NODE_WORDS.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, NoReturn

from ..verdict.check import Check
from ..verdict.commands import playbook
from .occupied import TAKEN


class Ending(Enum):
    """Each way to end, with what the verdict finds then."""

    FINISHED = Check(
        "launch.ended",
        seen="stand-in",
        reads="how the ranks and the unit of a launch ended",
        fires="never: it is the pass of a node whose ranks ended with code 0",
    )
    FAILED = Check(
        "launch.failed",
        seen="stand-in",
        reads="how torchrun ended",
        fires="it ended without a reason that could be found (fail)",
        fix="Read the log that is named",
    )
    EXCEPTION = Check(
        "launch.exception",
        seen="sandbox",
        reads="the ranks' standard error, the earliest first",
        fires="a rank ended by a Python exception, whose last line is quoted (fail)",
        fix="Read the log that is named",
    )
    SIGNAL = Check(
        "launch.signal",
        seen="sandbox",
        reads="the exit codes of the ranks",
        fires="a rank was killed by a signal, such as SIGKILL by the kernel when memory ran out (fail)",
        fix="Read the log that is named, and the kernel log of the node",
    )
    EXIT = Check(
        "launch.exit",
        seen="stand-in",
        reads="the exit codes of the ranks",
        fires="a rank ended with another code than 0 (fail)",
        fix="Read the log that is named",
    )
    AGENT = Check(
        "launch.agent",
        seen="sandbox",
        reads="the exit code and the log of torchrun",
        fires="torchrun itself failed on the node (fail)",
        fix="Read the log that is named",
    )
    UNIT = Check(
        "launch.unit",
        seen="sandbox",
        reads="the state of the unit",
        fires="systemd or the kernel ended the unit from outside (fail)",
        fix="Look at journalctl -u with the name of the unit",
    )
    TAKEN = TAKEN
    LEASE = Check(
        "launch.lease",
        seen="stand-in",
        reads="the lease that the supervisor renews",
        fires="nobody renewed it: the controller was gone or cut off (fail)",
        fix="Launch again; detached, a launch goes on without the controller",
    )
    PEER = Check(
        "launch.peer",
        seen="sandbox",
        reads="the beats that the nodes of a detached launch exchange, and what each says of its end",
        fires="the part of another node failed, or that node was silent for 20 s (fail)",
        fix="Look at the node that is named, and at the way to it",
    )
    LIMIT = Check(
        "launch.limit",
        seen="sandbox",
        reads="the time limit of a detached launch",
        fires="it ran out (fail)",
        fix="Raise launch_time_limit",
    )
    NODE = Check(
        "launch.node",
        seen="sandbox",
        reads="the connection to the node while the launch runs",
        fires="it does not answer any more (fail)",
        fix="Look at the node, then launch again",
    )
    STALLED = Check(
        "launch.stalled",
        seen="sandbox",
        reads="the output and the stacks of all ranks",
        fires=(
            "no rank has written a line for launch_stall_timeout; the rank that holds the others up is named (fail)"
        ),
        fix="Read the stacks in the verdict",
    )
    INTERRUPTED = Check(
        "launch.interrupted",
        seen="stand-in",
        reads="the supervisor itself",
        fires="the launch was ended early, by a signal or by launch_stop (unknown)",
        fix="Launch again",
    )
    DETACHED = Check(
        "launch.detached",
        seen="sandbox",
        reads="the supervisor itself",
        fires="the launch goes on without it, so its result is not known yet (unknown)",
        fix=f"Follow it with {playbook('playbooks/launch.yml', launch_attach='ID')}",
    )

    @property
    def check(self) -> Check:
        return self.value


CHECKS = tuple(ending.check for ending in Ending)
# What a supervisor can decide; the other endings are read from the reports of the nodes afterwards.
Decided = Literal[
    Ending.FINISHED, Ending.FAILED, Ending.NODE, Ending.STALLED, Ending.INTERRUPTED, Ending.DETACHED, Ending.TAKEN
]


class NodeOutcome(NamedTuple):
    """What a node's word comes to where it is a failure, and the sentence for it."""

    ending: Ending
    summary: str


ASKED = "asked"  # the ranks ended, or were killed, since somebody had asked for it (launch_stop, Ctrl-C)
EXIT = "exit"  # torchrun ended by itself, well with the code 0
STOPPED = "stopped"  # torchrun ended when the unit was stopped, by the supervisor or from outside
PEER = "peer"  # it was ended because of another node; a consequence, as far as that one says more
# By the `reason` that the program on a node leaves there when the launch has ended; a test holds both equal.
NODE_WORDS = {
    EXIT: NodeOutcome(Ending.AGENT, "{launcher} exited with code {code}"),
    STOPPED: NodeOutcome(
        Ending.UNIT, "the launch's unit was stopped from outside (systemctl stop, or the node shutting down)"
    ),
    ASKED: NodeOutcome(Ending.INTERRUPTED, "somebody ended the launch (launch_stop, or Ctrl-C)"),
    "exec": NodeOutcome(Ending.AGENT, "{launcher} could not be started: {error}"),
    "lease": NodeOutcome(Ending.LEASE, "nobody renewed the launch's lease: the controller was gone or cut off"),
    PEER: NodeOutcome(Ending.PEER, "this part was ended because of another one: {error}"),
    "limit": NodeOutcome(Ending.LIMIT, "the launch ran into its time limit (launch_time_limit)"),
}
UNKNOWN_WORD = NodeOutcome(Ending.FAILED, "the node reports an ending that is not known here: {reason!r:.60}")


def has_failed(ending: Decided) -> bool:
    """Return whether the launch failed, so that its cause is searched and another attempt may help."""
    match ending:
        case Ending.FAILED | Ending.NODE | Ending.STALLED:
            failed = True
        case Ending.FINISHED | Ending.INTERRUPTED | Ending.DETACHED | Ending.TAKEN:
            failed = False
        case other:
            never(other)
    return failed


def never(value: NoReturn) -> NoReturn:
    """Exhaustiveness guard for `match`: mypy names each place that has no case for an ending."""
    raise AssertionError(f"no case for {value}")
