"""The supervisor's record of each node while a launch runs: the last report, the clock offset and the logs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from muster.launch import launchers
from muster.launch.failure import NodeReport
from muster.launch.unit import UnitEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muster.launch.messages import LaunchLook
    from muster.launch.planned import LaunchPlan
    from muster_controller.nodes.messages import NodeReply

    from .tails import Tails

MOST_NOTES = 200  # shown notes, of all nodes together


class NodeReports:
    """by_node: the reports, in the order of the nodes in the plan."""

    def __init__(self, plan: LaunchPlan, logs: Tails, say: Callable[[str], None]) -> None:
        self.logs = logs
        self.say = say
        self.said: set[str] = set()
        self.offsets: dict[str, float] = {}
        self.by_node = {
            entry.node: NodeReport(
                entry.node,
                reached=False,
                first_rank=entry.ranks[0],
                launcher=launchers.spoken(plan.launcher),
            )
            for entry in plan.nodes
        }

    def all(self) -> list[NodeReport]:
        return list(self.by_node.values())

    def reached(self, nodes: set[str]) -> None:
        for name in nodes:
            self.by_node[name].reached = True

    def keep(self, answer: NodeReply) -> None:
        """Record the node's state from the response to a look or to stop."""
        look: LaunchLook = answer.data
        report = self.by_node[answer.node]
        report.last_answer = answer.received
        # The node reads its clock last, so this is the offset minus the return delay. The largest value is the best.
        offset = look["clock"] - answer.received
        self.offsets[answer.node] = max(offset, self.offsets.get(answer.node, offset))
        report.clock_offset = self.offsets[answer.node]
        report.ended = look["result"] or report.ended
        report.unit = UnitEnd.read(look["unit"])
        report.ranks = look["ranks"] or report.ranks
        report.errors.update(look["errors"])
        report.disk = look["disk"]
        for note in look["notes"]:
            self.note(f"{answer.node}: {note.line}")
        self.take_logs(answer)

    @contextmanager
    def contained(self, about: str) -> Iterator[None]:
        """Report an exception in the handling of a response, and continue, because the next response can be
        valid."""
        try:
            yield
        except Exception as exc:  # low memory, or a bug in this program
            self.note(f"{about}: the response could not be processed ({type(exc).__name__}: {exc})")

    def take_logs(self, answer: NodeReply) -> None:
        for what in answer.dropped:
            self.note(f"{answer.node}: invalid {what} in the response was ignored")
        self.logs.take(answer.node, answer.data["logs"])

    def note(self, sentence: str) -> None:
        if sentence not in self.said and len(self.said) < MOST_NOTES:
            self.said.add(sentence)
            self.say(sentence)

    def late(self, answer: NodeReply) -> None:
        """Record the response to a look that was still in progress when another request was sent."""
        if answer.verb == "look" and answer.data is not None:
            self.keep(answer)

    def lost(self, name: str, why: str) -> None:
        self.by_node[name].lost = True
        self.by_node[name].lost_why = why

    def take_last_words(self) -> None:
        """Record the end of each log once all logs are complete. The search for the first failure uses these texts."""
        self.logs.finish()
        for name, report in self.by_node.items():
            report.agent_log = self.logs.tail(name, "agent")
            report.stderr = self.logs.stderr_tails(name)
