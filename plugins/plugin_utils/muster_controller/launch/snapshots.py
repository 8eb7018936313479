"""The state of all ranks when a launch fails, recorded before any rank is stopped.

Snapshots use separate connections. Therefore, a look in progress does not delay a snapshot, and a slow snapshot does
not delay stopping the node.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from muster.launch.endings import Ending, has_failed

from .kept_evidence import SNAPSHOT
from .launch_messages import LaunchMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.launch.planned import LaunchPlan
    from muster.launch.watch import Decision
    from muster_controller.playbook.node_error import Way

    from .evidence import LaunchEvidence

SECONDS = 3.0  # timeout of a snapshot


class Snapshots:
    def __init__(self, connections: Mapping[str, Way], messages: LaunchMessages, evidence: LaunchEvidence) -> None:
        """messages: the messages of the supervisor, which contain the launch's user."""
        self.connections = connections
        self.usual = messages
        self.messages: LaunchMessages | None = None
        self.evidence = evidence
        self.asked: dict[str, float] = {}

    def ask(self, plan: LaunchPlan, decision: Decision) -> None:
        """Request a snapshot once from every node, except from a node that stopped responding."""
        if self.asked or not has_failed(decision.ending):
            return
        gone = decision.node if decision.ending is Ending.NODE else ""
        messages = self.messages = self.messages or self.opened()
        for entry in plan.nodes:
            if entry.node != gone:
                request = self.evidence.snapshot_request(plan, entry)
                messages.ask(entry.node, "snapshot", {**request}, privileged=True)
                self.asked[entry.node] = time.monotonic()

    def opened(self) -> LaunchMessages:
        messages = LaunchMessages(
            {name: connection.beside() for name, connection in self.connections.items()}, self.usual.program
        )
        messages.own, messages.as_root = self.usual.own, self.usual.as_root
        messages.open()
        return messages

    def gather(self, give_up: Callable[[], bool]) -> None:
        """Record the snapshots that have been received, and wait until the timeout for the others."""
        if self.messages is None or not self.asked:
            return
        left = min(self.asked.values()) + SECONDS - time.monotonic()
        answers = self.messages.gather("snapshot", self.asked, max(left, 0.1), lambda _: None, give_up)
        for name in self.asked:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                why = answer.error if answer else f"no response within {SECONDS:.0f} s"
                self.evidence.silent[name] = why
                self.evidence.note(f"{name}: the state of the ranks before the end is unknown: {why}")
            else:
                self.evidence.take(SNAPSHOT, name, answer.data)
        self.messages.close()
