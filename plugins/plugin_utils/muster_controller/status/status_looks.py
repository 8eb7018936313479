"""Checks all nodes in parallel for the status screen, with one round trip each and a time limit for slow nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.status.seen import needs_root
from muster.verdict.access import explain
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster_controller.nodes.messages import NodeReply
    from muster_controller.playbook.node_error import Way

PROGRAM = NodeProgram("status")
NOBODY_YET = 10.0  # seconds until the first answer; ssh times out then
OF_A_LOOK = 0.75  # share of the patience that a node's program waits for nvidia-smi


class Round(NamedTuple):
    """Results by node: the response, the reason for a missing response, and why facts that only root can read are
    missing."""

    answers: dict[str, dict[str, Any]]
    silent: dict[str, str]
    not_root: dict[str, str]


class Looks:
    """Checks the nodes repeatedly. A node with a pending request gets no second request."""

    def __init__(self, ways: Mapping[str, Way], requests: Mapping[str, dict[str, Any]], patience: float) -> None:
        """requests: the request for each node. patience: time in seconds to wait for silent nodes once another node has
        responded."""
        self.requests = requests
        self.patience = patience
        self.messages = Messages(ways, PROGRAM)
        self.messages.open()
        self.asked: set[str] = set()
        self.half: dict[str, dict[str, Any]] = {}  # answers of nodes that are asked again as root

    def round(self, give_up: Callable[[], bool] = lambda: False) -> Round:
        found = Round({}, {}, {})
        for name, request in self.requests.items():
            if name not in self.asked:
                self.messages.ask(name, "look", {**request, "seconds": OF_A_LOOK * self.patience})
                self.asked.add(name)
        began = time.monotonic()
        until = began + max(NOBODY_YET, self.patience)
        while self.missing(found) and time.monotonic() < until and not give_up():
            answer = self.messages.next(min(0.1, max(0.0, until - time.monotonic())))
            if answer is not None:
                self.take(answer, found)
                if found.answers:
                    until = time.monotonic() + self.patience
        for name in self.missing(found):
            if name in self.half:
                found.answers[name] = self.half[name]
                found.not_root[name] = "no response in time"
            else:
                found.silent[name] = f"no response within {max(1.0, time.monotonic() - began):.0f} s"
        return found

    def missing(self, found: Round) -> list[str]:
        return [name for name in self.requests if name not in found.answers and name not in found.silent]

    def take(self, answer: NodeReply, found: Round) -> None:
        name = answer.node
        if answer.verb == "seats":
            known = self.half.pop(name, None)
            if known is not None:
                found.answers[name] = {**known, **(answer.data or {})}
                if answer.data is None:
                    found.not_root[name] = explain(answer.error)[0] or answer.error
        elif answer.data is None:
            found.silent[name] = answer.error
        else:
            said = {**answer.data, "clock_off": clock_off(answer)}
            if needs_root(said):
                self.half[name] = said
                self.messages.ask(name, "seats", {}, privileged=True)
                return
            found.answers[name] = said
        self.asked.discard(name)

    def close(self) -> None:
        self.messages.close()


def clock_off(answer: NodeReply) -> float | None:
    """Return how many seconds a node's clock is ahead of this machine's clock, minus the duration of the request."""
    clock = answer.data.get("clock") if isinstance(answer.data, dict) else None
    if not isinstance(clock, (int, float)):
        return None
    wall = time.time() - time.monotonic()
    return min(0.0, clock - (wall + answer.sent)) + max(0.0, clock - (wall + answer.received))
