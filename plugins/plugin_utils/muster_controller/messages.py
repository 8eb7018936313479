"""Messages to the nodes of a launch and their answers: one thread per node, so that one that hangs delays nobody."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .connection import NodeConnection, NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .program import Program


@dataclass(frozen=True)
class Answer:
    """What came of one message; `sent` and `received` in controller time. Without data, `error` says why.

    data: what the program's verb returns, such as those in muster/launch/messages.py.
    """

    node: str
    verb: str
    sent: float
    received: float
    data: Any = None
    error: str = ""
    reachable: bool = True


class NodeThread(threading.Thread):
    """Carries one message at a time to one node. A daemon: a hung connection must not hold up the end."""

    def __init__(self, connection: NodeConnection, answers: queue.Queue[Answer]) -> None:
        super().__init__(daemon=True, name=connection.name)
        self.connection = connection
        self.answers = answers
        self.inbox: queue.Queue[tuple[Program, str, dict[str, Any], bool, float]] = queue.Queue()
        # Ansible keeps the current task in a context variable, which new threads do not inherit.
        self.context = contextvars.copy_context()

    def run(self) -> None:
        while True:
            program, verb, payload, privileged, not_before = self.inbox.get()
            time.sleep(max(0.0, not_before - time.time()))
            self.answers.put(self.context.run(self.carry, program, verb, payload, privileged))

    def carry(self, program: Program, verb: str, payload: dict[str, Any], privileged: bool) -> Answer:
        sent = time.time()
        try:
            data = program.call(self.connection, verb, payload, privileged=privileged)
        except NodeError as exc:
            return Answer(self.name, verb, sent, time.time(), None, str(exc), exc.reachable)
        except Exception as exc:  # whatever a connection plugin may raise is news about this node
            return Answer(self.name, verb, sent, time.time(), None, f"{type(exc).__name__}: {exc}")
        return Answer(self.name, verb, sent, time.time(), data)


class Messages:
    """Messages to several nodes. program: the one whose verbs are sent, where a message names no other."""

    def __init__(self, connections: dict[str, NodeConnection], program: Program) -> None:
        self.program = program
        self.answers: queue.Queue[Answer] = queue.Queue()
        self.threads = {name: NodeThread(connection, self.answers) for name, connection in connections.items()}

    def open(self) -> None:
        for thread in self.threads.values():
            thread.start()

    def ask(
        self,
        node: str,
        verb: str,
        payload: dict[str, Any],
        *,
        privileged: bool = False,
        delay: float = 0.0,
        program: Program | None = None,
    ) -> None:
        """Send behind what is already under way to this node, and not before `delay` seconds from now."""
        self.threads[node].inbox.put((program or self.program, verb, payload, privileged, time.time() + delay))

    def next(self, timeout: float) -> Answer | None:
        try:
            return self.answers.get(timeout=timeout)
        except queue.Empty:
            return None

    def gather(
        self,
        verb: str,
        nodes: Collection[str],
        timeout: float,
        on_other: Callable[[Answer], None],
        give_up: Callable[[], bool] = lambda: False,
    ) -> dict[str, Answer]:
        """The answers of these nodes to one verb; a node that does not answer in time is missing."""
        found: dict[str, Answer] = {}
        deadline = time.time() + timeout
        while len(found) < len(nodes) and time.time() < deadline and not give_up():
            answer = self.next(0.2)
            if answer is not None and answer.verb == verb:
                found[answer.node] = answer
            elif answer is not None:
                on_other(answer)
        return found
