"""When is a launch over, and why: the supervisor's decisions, without a clock or a connection of its own.

The supervisor feeds in what it sees (`saw`, `no_answer`) with the time of seeing, and asks `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..verdict.words import few
from .agent_log import agent_closes
from .endings import ASKED, EXIT, NODE_WORDS, Decided, Ending

if TYPE_CHECKING:
    from .messages import LaunchLook, RanksEnd, RankState, Result


LOOK_BYTES = 16 * 1024 * 1024  # of logs, in one look at every node


# ---------------------------------------------------------------- pace

# How often a supervisor looks at its nodes, and how long one may be silent: the more nodes, the more slowly.


@dataclass(frozen=True)
class Pace:
    """Seconds, but for look_bytes.

    wait: a look returns at once when there is news, else after this long. pause: between two looks at one node.
    look_bytes: of logs, in one look. notice: a node that has not answered for this long is spoken of. patience: after
    this long the launch is ended without it. lease: what a node goes on without having been looked at; longer than
    patience, so that its peers are ended before the silent node's own lease ends what runs there.
    """

    wait: float
    pause: float
    look_bytes: int
    notice: float
    patience: float
    lease: float


def pace(nodes: int, silence_timeout: float = 0.0) -> Pace:
    """That of a launch on so many nodes: at most some 80 looks a second. silence_timeout: the requested patience, 0
    for the least."""
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
ENDING_SLACK = 5.0  # seconds behind the time that ranks have to end, for their last words and their unit
SETTLED = 30.0  # seconds


@dataclass(frozen=True)
class Limits:
    """stall: seconds without a line from any rank until the launch is ended, as far as all nodes answer; 0 = never.

    start: seconds granted on top until the first line, while Python imports and the nodes find each other.
    notice: seconds without an answer after which a node is spoken of. patience: those after which it is given up; an
    attached supervisor never does. until_running: decide for `detached` as soon as all ranks run. any_ranks: a command
    is launched that is not known here: its ranks write where it likes, and nobody knows when all of them run.
    """

    stall: float = 0.0
    start: float = 0.0
    notice: float = 5.0
    patience: float = 9.0
    until_running: bool = False
    any_ranks: bool = False

    @property
    def attached(self) -> bool:
        """Whether the launch runs on its own, and is not ended because a part of it cannot be seen for a while."""
        return self.patience == FOREVER


@dataclass(frozen=True)
class Decision:
    """Why a launch ends, or is left alone. node: where it was noticed, '' for none in particular. by_hand: somebody has
    asked for it, so that its ranks have launch_stop_timeout. starting: it could not be started there."""

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
        """Whether nothing of the launch is there any more, not even its result."""
        return self.ended is None and self.over and self.unit.get("LoadState") == "not-found"

    @property
    def well(self) -> bool:
        return self.ended is not None and self.ended.get("reason") == EXIT and self.ended.get("code") == 0


class Watch:
    """The state of one launch over all of its nodes."""

    def __init__(self, nodes: dict[str, int], now: float, limits: Limits) -> None:
        """nodes: the number of ranks on each."""
        self.limits = limits
        self.began = self.last_line = now
        self.silent_for = limits.stall + limits.start
        self.ends_by = 0.0  # once ranks were told to end: until when all of them are waited for
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
        """The node could not be asked; it counts as silent since its last answer, a single miss is nothing yet."""
        self.nodes[name].why_silent = why

    def heard_until(self, now: float) -> float:
        """Until when every node has said what its ranks wrote: of one that does not answer, nothing is known since."""
        return min((node.last_answer for node in self.nodes.values() if not node.over), default=now)

    def notices(self, now: float) -> list[str]:
        """A sentence about the nodes that have just become silent, each once."""
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
        said = f"{who} not answered for {max(silent.values()):.0f} s"
        end = f"; the launch is ended if that goes on for {self.limits.patience:.0f} s"
        return [said if self.limits.attached else said + end]

    def all_run(self, now: float) -> bool:
        if all(node.running for node in self.nodes.values()):
            return True
        # A command may start ranks that do not say so: what has run for a while on every node goes on.
        up = all(node.unit.get("ActiveState") == "active" for node in self.nodes.values())
        return self.limits.any_ranks and up and now - self.began > SETTLED

    def decide(self, now: float) -> Decision | None:
        """None as long as the launch should go on."""
        cleared = [name for name, node in self.nodes.items() if node.cleared]
        if self.limits.attached and cleared and all(node.well or node.cleared for node in self.nodes.values()):
            text = "its end was dealt with by another supervisor, which has its verdict, or its nodes were restarted"
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
                why = "or this machine is cut off (launch_silence_timeout waits longer)"
                return Decision(Ending.INTERRUPTED, f"none of {len(silence)} nodes answers, {why}")
            name = max(silence, key=silence.__getitem__)
            return Decision(Ending.NODE, self.nodes[name].why_silent, name)
        if all(node.well for node in self.nodes.values()):
            return Decision(Ending.FINISHED, "every node's part ended well")
        if self.limits.until_running and self.all_run(now):
            return Decision(Ending.DETACHED, "all ranks run")
        if self.limits.stall and not told and self.heard_until(now) - self.last_line > self.silent_for:
            return Decision(Ending.STALLED, f"no rank wrote a line for {self.silent_for:.0f} s")
        return None
