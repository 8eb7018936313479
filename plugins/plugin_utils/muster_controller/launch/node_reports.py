"""What a supervisor keeps of each node while a launch runs: its last look, its clock and its logs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from muster.launch import launchers
from muster.launch.failure import NodeReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muster.launch.messages import Look
    from muster_controller.nodes.messages import NodeReply

    from .tails import Tails

MOST_NOTES = 200  # of all nodes, that are said


class NodeReports:
    """by_node: the report of each node, in the order of the plan."""

    def __init__(self, plan: dict[str, Any], logs: Tails, say: Callable[[str], None]) -> None:
        self.logs = logs
        self.say = say
        self.said: set[str] = set()
        self.offsets: dict[str, float] = {}
        self.by_node = {
            entry["node"]: NodeReport(
                entry["node"],
                reached=False,
                first_rank=entry["ranks"][0],
                launcher=launchers.spoken(plan.get("launcher", launchers.TORCHRUN.name)),
            )
            for entry in plan["nodes"]
        }

    def all(self) -> list[NodeReport]:
        return list(self.by_node.values())

    def reached(self, nodes: set[str]) -> None:
        for name in nodes:
            self.by_node[name].reached = True

    def keep(self, answer: NodeReply) -> None:
        """Take over what a look (or the last one, in stop) brought."""
        look: Look = answer.data
        report = self.by_node[answer.node]
        report.last_answer = answer.received
        # The node's clock is read last of all, so this is its offset less the way back: the largest is the truest.
        offset = look["clock"] - answer.received
        self.offsets[answer.node] = max(offset, self.offsets.get(answer.node, offset))
        report.clock_offset = self.offsets[answer.node]
        report.ended = look["result"] or report.ended
        report.unit = look["unit"]
        report.ranks = look["ranks"] or report.ranks
        report.errors.update(look["errors"])
        report.disk = look["disk"]
        for note in look["notes"]:
            self.note(f"{answer.node}: {note.line}")
        self.take_logs(answer)

    @contextmanager
    def contained(self, about: str) -> Iterator[None]:
        """What goes wrong here with one answer ends nothing: it is said, and the next answer may be fine."""
        try:
            yield
        except Exception as exc:  # short memory, or a fault of this program's own
            self.note(f"{about}: what it reports could not be taken over here ({type(exc).__name__}: {exc})")

    def take_logs(self, answer: NodeReply) -> None:
        for what in answer.dropped:
            self.note(f"{answer.node}: {what} that it reports is of no use, and left out")
        self.logs.take(answer.node, answer.data["logs"])

    def note(self, sentence: str) -> None:
        if sentence not in self.said and len(self.said) < MOST_NOTES:
            self.said.add(sentence)
            self.say(sentence)

    def late(self, answer: NodeReply) -> None:
        """Keep a look that was under way when something else was asked."""
        if answer.verb == "look" and answer.data is not None:
            self.keep(answer)

    def lost(self, name: str, why: str) -> None:
        self.by_node[name].lost = True
        self.by_node[name].lost_why = why

    def take_last_words(self) -> None:
        """Once all logs are here: the end of each, by which the first failure is found."""
        self.logs.finish()
        for name, report in self.by_node.items():
            report.agent_log = self.logs.tail(name, "agent")
            report.stderr = self.logs.stderr_tails(name)
