"""Decide when and why a launch ends. This is the logic of the supervisor, without clock and connections.

The supervisor passes timestamped observations to `saw` and `no_answer`, and calls `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.words import few
from .agent_log import agent_closes
from .endings import ASKED, EXIT, NODE_WORDS, Decided, Ending

if TYPE_CHECKING:
    from .messages import LaunchLook, RanksEnd, RankState, Result


LOOK_BYTES = 16 * 1024 * 1024  # of logs, in one request to all nodes


# ---------------------------------------------------------------- pace

# How often a supervisor queries its nodes, and how long a node may be silent. Both grow with the number of nodes.


@dataclass(frozen=True)
class Pace:
    """Timing of the supervisor in seconds, and the size limit of a request.

    wait: maximum duration of a request, which returns earlier if something changes. pause: time between two requests to
    a node. look_bytes: maximum bytes of logs in one request. notice: a node is reported after it was silent for this
    long. patience: the launch is stopped after a node was silent for this long. lease: how long a node continues
    without a request. It is longer than patience, so that the other nodes are stopped before the lease of the silent
    node expires.
    """

    wait: float
    pause: float
    look_bytes: int
    notice: float
    patience: float
    lease: float


def pace(nodes: int, silence_timeout: float = 0.0) -> Pace:
    """Return the pace for a number of nodes, which gives at most about 80 requests per second.

    silence_timeout: the requested patience; 0 for the minimum.
    """
    wait = min(max(2.0, nodes / 80), 4.0)
    pause = min(max(0.25, nodes / 80), 4.0)
    patience = max(9.0, wait + pause + 6.75, silence_timeout)
    return Pace(
        wait=wait,
        pause=pause,
        look_bytes=min(max(LOOK_BYTES // max(nodes, 1), 32 * 1024), 512 * 1024),
        notice=max(wait + pause + 2.75, patience * 5 / 9),
        patience=patience,
        lease=patience + 2.0,
    )


FOREVER = float("inf")
ENDING_SLACK = 5.0  # seconds after the ranks' time to end, for their last output and their unit
SETTLED = 30.0  # seconds


@dataclass(frozen=True)
class Limits:
    """stall: the launch is stopped after no rank has printed anything for this many seconds although all nodes respond;
    0 for never.

    start: additional seconds until the first line of output, for Python imports and the rendezvous. notice: seconds of
    silence after which a node is reported. patience: seconds of silence after which the launch is stopped; infinite for
    a supervisor that attached to the launch. until_running: whether to decide `detached` as soon as all ranks run.
    any_ranks: whether the launch has an unknown command, so that it is unknown which logs its ranks write and when all
    ranks run.
    """

    stall: float = 0.0
    start: float = 0.0
    notice: float = 5.0
    patience: float = 9.0
    until_running: bool = False
    any_ranks: bool = False

    @property
    def attached(self) -> bool:
        """Return whether the supervisor attached to a detached launch.

        Such a launch is not stopped because a node is silent.
        """
        return self.patience == FOREVER


@dataclass(frozen=True)
class Decision:
    """Why a launch ends, or why it continues without the supervisor.

    node: where the reason was observed; '' for none. by_hand: whether a user requested the stop, so that ranks get
    launch_stop_timeout. starting: whether the launch could not be started on that node.
    """

    ending: Decided
    text: str
    node: str = ""
    by_hand: bool = False
    starting: bool = False


@dataclass
class NodeWatch:
    last_answer: float
    nproc: int
    ended: Result | None = None
    unit: dict[str, str] = field(default_factory=dict)
    ranks: list[RankState] = field(default_factory=list)
    closing: bool = False
    silence_said: bool = False
    why_silent: str = ""
    told_to_end: RanksEnd | None = None

    @property
    def over(self) -> bool:
        return self.ended is not None or self.unit.get("ActiveState") in ("inactive", "failed")

    @property
    def running(self) -> bool:
        return sum(rank["gone_at"] is None for rank in self.ranks) == self.nproc

    @property
    def cleared(self) -> bool:
        """Return whether nothing of the launch remains on the node, not even its result."""
        return self.ended is None and self.over and self.unit.get("LoadState") == "not-found"

    @property
    def well(self) -> bool:
        return self.ended is not None and self.ended.get("reason") == EXIT and self.ended.get("code") == 0


class Watch:
    """The state of one launch on all of its nodes."""

    def __init__(self, nodes: dict[str, int], now: float, limits: Limits) -> None:
        """nodes: the number of ranks of each node, by node name."""
        self.limits = limits
        self.began = self.last_line = now
        self.silent_for = limits.stall + limits.start
        self.ends_by = 0.0  # after a stop of ranks: the time limit for all of them to end
        self.nodes = {name: NodeWatch(now, nproc) for name, nproc in nodes.items()}

    def saw(self, name: str, look: LaunchLook, now: float) -> None:
        node = self.nodes[name]
        node.last_answer = now
        node.silence_said = False
        node.ended = look["result"] or node.ended
        node.unit = look["unit"]
        node.ranks = look["ranks"]
        node.told_to_end = look.get("ending")
        if node.told_to_end and not node.over and self.ends_by == 0.0:
            self.ends_by = now + node.told_to_end["left"] + ENDING_SLACK
        agent = look["logs"].get("agent")
        node.closing = node.closing or (agent is not None and agent_closes(agent["text"]))
        if any((key != "agent" or self.limits.any_ranks) and part["text"] for key, part in look["logs"].items()):
            self.last_line = now
            self.silent_for = self.limits.stall

    @property
    def over(self) -> bool:
        return all(node.over for node in self.nodes.values())

    def no_answer(self, name: str, why: str) -> None:
        """Record a failed request. The node counts as silent from the time of its last answer."""
        self.nodes[name].why_silent = why

    def heard_until(self, now: float) -> float:
        """Return the time up to which the output of all nodes has been received."""
        return min((node.last_answer for node in self.nodes.values() if not node.over), default=now)

    def notices(self, now: float) -> list[str]:
        """Return a sentence about each node that has become silent. Each silence is reported once."""
        silent = {
            name: now - node.last_answer
            for name, node in self.nodes.items()
            if not node.over and not node.silence_said and now - node.last_answer > self.limits.notice
        }
        if not silent:
            return []
        for name in silent:
            self.nodes[name].silence_said = True
        who = f"{few(list(silent))} {'has' if len(silent) == 1 else 'have'}"
        said = f"{who} not responded for {max(silent.values()):.0f} s"
        end = f"; the launch is stopped after {self.limits.patience:.0f} s without a response"
        return [said if self.limits.attached else said + end]

    def all_run(self, now: float) -> bool:
        if all(node.running for node in self.nodes.values()):
            return True
        # The ranks of a command may not be identifiable: then the units must have been active for a while on all nodes.
        up = all(node.unit.get("ActiveState") == "active" for node in self.nodes.values())
        return self.limits.any_ranks and up and now - self.began > SETTLED

    def decide(self, now: float) -> Decision | None:
        """Return the decision to end the launch, or None if the launch continues."""
        cleared = [name for name, node in self.nodes.items() if node.cleared]
        if self.limits.attached and cleared and all(node.well or node.cleared for node in self.nodes.values()):
            text = "the nodes no longer have its result: another supervisor collected it, or the nodes were rebooted"
            return Decision(Ending.INTERRUPTED, text, cleared[0])
        told = any(node.told_to_end and not node.over for node in self.nodes.values()) and now < self.ends_by
        asked = [name for name, node in self.nodes.items() if node.ended and node.ended.get("reason") == ASKED]
        if asked and not told:
            return Decision(Ending.INTERRUPTED, NODE_WORDS[ASKED].summary, asked[0])
        for name, node in self.nodes.items() if not told else ():
            if node.over and not node.well:
                return Decision(Ending.FAILED, f"the launch ended on {name}", name)
            if node.closing and not node.over:
                return Decision(Ending.FAILED, f"a rank failed on {name}", name)
        silence = {name: now - node.last_answer for name, node in self.nodes.items() if not node.over}
        if silence and max(silence.values()) > self.limits.patience:
            if len(silence) > 1 and min(silence.values()) > self.limits.notice:
                why = "or the controller has lost its connection (increase launch_silence_timeout to wait longer)"
                return Decision(Ending.INTERRUPTED, f"none of the {len(silence)} nodes responds, {why}")
            name = max(silence, key=silence.__getitem__)
            return Decision(Ending.NODE, self.nodes[name].why_silent, name)
        if all(node.well for node in self.nodes.values()):
            return Decision(Ending.FINISHED, "the launch succeeded on all nodes")
        if self.limits.until_running and self.all_run(now):
            return Decision(Ending.DETACHED, "all ranks run")
        if self.limits.stall and not told and self.heard_until(now) - self.last_line > self.silent_for:
            return Decision(Ending.STALLED, f"no rank printed a line for {self.silent_for:.0f} s")
        return None
