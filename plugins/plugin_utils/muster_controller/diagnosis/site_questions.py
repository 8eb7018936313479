"""Runs the commands of site rules on nodes, if the site allows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from muster.diagnosis.site_rules import Answers
from muster_controller.nodes.program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from muster.diagnosis.site_rules import SiteQuestion
    from muster_controller.nodes.messages import Messages

PROGRAM = NodeProgram("site_questions")
MOST_NODES, MOST_COMMANDS = 16, 32
MOST_OUTPUT = 5_000  # characters of an answer


class SiteQuestions:
    def __init__(self, messages: Messages, nodes: Collection[str], user: str, lost: Mapping[str, str]) -> None:
        """nodes: the nodes on which commands may run. user: the user that runs the commands, instead of root. lost: the
        nodes that do not respond."""
        self.messages = messages
        self.nodes = nodes
        self.user = user
        self.lost = lost
        self.asked: dict[str, dict[str, SiteQuestion]] = {}
        self.left_out: list[SiteQuestion] = []

    def ask(self, questions: Sequence[SiteQuestion]) -> None:
        for one in questions:
            known = self.asked.get(one.node, {})
            full = len(known) >= MOST_COMMANDS or (not known and len(self.asked) >= MOST_NODES)
            if one.node in self.lost or one.node not in self.nodes or full:
                self.left_out.append(one)
            else:
                self.asked.setdefault(one.node, {})[one.command.question] = one
        for node, commands in self.asked.items():
            request = {
                name: {"argv": list(one.command.argv), "seconds": one.command.seconds} for name, one in commands.items()
            }
            self.messages.ask(node, "commands", {"user": self.user, "commands": request}, program=PROGRAM)

    def gather(self, until: float, give_up: Callable[[], bool]) -> Answers:
        """Return the responses that arrive before this time on the monotonic clock, and the reasons for missing
        responses."""
        left = max(0.1, until - time.monotonic())
        came = self.messages.gather("commands", self.asked, left, lambda _: None, give_up) if self.asked else {}
        found = Answers()
        for node, commands in self.asked.items():
            answer = came.get(node)
            said = answer.data.get("answers") if answer and isinstance(answer.data, dict) else None
            why = (answer.error if answer else "") or "no response in time"
            for name, one in commands.items():
                take(found, one, said.get(name) if isinstance(said, dict) else None, why)
        for one in self.left_out:
            limits = f"at most {MOST_COMMANDS} commands run per node, on at most {MOST_NODES} nodes"
            found.leave(one, f"not run: {self.lost.get(one.node) or limits}")
        return found


def take(found: Answers, one: SiteQuestion, said: Any, why: str) -> None:
    """Validate and store the response of a node to one command. why: the reason if the node did not respond."""
    if not isinstance(said, dict):
        found.leave(one, why)
        return
    code, output = said.get("code"), said.get("output")
    if type(code) not in (int, type(None)) or not isinstance(output, str):
        found.leave(one, "invalid response")
        return
    found.take(one, code, output[:MOST_OUTPUT], str(said.get("why") or "")[:MOST_OUTPUT])
