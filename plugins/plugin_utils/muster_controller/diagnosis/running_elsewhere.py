"""Finds launches that are running on the nodes, started by any user, to diagnose one that hangs.

The checks are read-only, and running processes continue.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from muster.diagnosis import hand_typed
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.evidence import Agent
from muster.diagnosis.launched import MOST_INVOLVED, Gathered
from muster.verdict import reading
from muster_controller.launch.elsewhere import ask
from muster_controller.nodes.program import NodeProgram

from .afterwards import Afterwards

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from muster.diagnosis.hand_typed import Choice
    from muster.launch.plan import NodeSpec
    from muster_controller.nodes.messages import Messages

PROGRAM = NodeProgram("diagnosis")
MOST_WHY = 400  # characters


class RunningElsewhere:
    """Running launches. agents: the torchrun agents on each node. silent: for each other node, why it did not report
    its agents."""

    def __init__(self, messages: Messages, nodes: Sequence[str]) -> None:
        self.messages = messages
        self.key = secrets.token_hex(32)
        heard = ask(messages, nodes, "agents", {"key": self.key})
        self.silent = dict(heard.silent)
        self.logins = {str(who.get("name")) for who in heard.who.values()}
        self.agents: dict[str, list[Agent]] = {}
        for name, answer in heard.said.items():
            found, whole = reading.read_all(Agent, answer.get("agents"))
            self.agents[name] = found
            unseen = answer.get("unseen")
            for part, why in unseen.items() if isinstance(unseen, dict) else ():
                if part != "others":  # a user without root sees only their own processes, as intended
                    self.silent[name] = str(why)[:MOST_WHY]
            if not whole:
                self.silent[name] = "the node reported invalid process data"

    def choice(self, here: Collection[str], accounts: Iterable[str], wanted: str, *, has_last: bool) -> Choice:
        """Choose the launch to diagnose; see hand_typed.choose. Root and the login users of the nodes also count as
        accounts of the cluster."""
        known = {*accounts, *self.logins, "root"}
        return hand_typed.choose(self.agents, here, known, wanted, has_last=has_last)

    def case(self, user: str, specs: Mapping[str, NodeSpec], give_up: Callable[[], bool]) -> LaunchCase:
        """Return the case of the launch that the given user started."""
        typed = hand_typed.one_launch(self.agents, user)
        gathered = Gathered(key=self.key, not_looked=dict(self.silent))
        shape = hand_typed.case_shape(typed, specs, gathered)
        plan = hand_typed.plan_of(shape["launch"], user)
        Afterwards(plan, plan.names[:MOST_INVOLVED], self.messages, give_up, {}).look(gathered, live=True)
        return LaunchCase(hand_typed.case_shape(typed, specs, gathered))
