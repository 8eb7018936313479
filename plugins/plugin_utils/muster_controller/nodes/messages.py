"""Messages to the nodes of a launch and their answers: one thread per node, so that one that hangs delays nobody.

All times are on the monotonic clock: no step of the wall clock ends a wait, or makes it longer.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.verdict.reading import UnusableError
from muster_controller.playbook.node_error import NodeError, one_line

from .own_limits import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from muster.launch.answers import Reader
    from muster_controller.playbook.node_error import Way

    from .program import NodeProgram

OPENED_AT_ONCE = 32  # connections: each begins processes here and a login there
OPENING = 3.0  # seconds that one waits for others to be open; those may be to nodes that hang


def as_it_is(_node: str, _verb: str, data: Any) -> tuple[Any, tuple[str, ...]]:
    return data, ()


@dataclass(frozen=True)
class NodeReply:
    """What came of one message; `sent` and `received` on the monotonic clock. Without data, `error` says why.

    data: what the program's verb returns, such as those in muster/launch/messages.py. dropped: what was no use in it.
    """

    node: str
    verb: str
    sent: float
    received: float
    data: Any = None
    error: str = ""
    reachable: bool = True
    dropped: tuple[str, ...] = ()


class NodeThread(threading.Thread):
    """Carries one message at a time to one node. A daemon: a hung connection must not hold up the end."""

    def __init__(self, connection: Way, messages: Messages) -> None:
        super().__init__(daemon=True, name=connection.name)
        self.connection = connection
        self.messages = messages
        self.opened = False
        self.inbox: queue.Queue[tuple[NodeProgram, str, dict[str, Any], bool, float] | None] = queue.Queue()
        # Ansible keeps the current task in a context variable, which new threads do not inherit.
        self.context = contextvars.copy_context()

    def run(self) -> None:
        while (message := self.inbox.get()) is not None:
            program, verb, payload, privileged, not_before = message
            time.sleep(max(0.0, not_before - time.monotonic()))
            slot = not self.opened and self.messages.opening.acquire(timeout=OPENING)
            self.opened = True
            answer = self.context.run(self.carry, program, verb, payload, privileged)
            if slot:
                self.messages.opening.release()
            self.messages.answers.put(answer)

    def carry(self, program: NodeProgram, verb: str, payload: dict[str, Any], privileged: bool) -> NodeReply:
        sent = time.monotonic()
        try:
            data = program.call(self.connection, verb, payload, privileged=privileged)
            received = time.monotonic()
            data, dropped = self.messages.read(self.name, verb, data)
        except NodeError as exc:
            return NodeReply(self.name, verb, sent, time.monotonic(), None, explained(str(exc)), exc.reachable)
        except UnusableError as exc:
            return NodeReply(self.name, verb, sent, received, None, f"its answer to {verb} is of no use: {exc}")
        except Exception as exc:  # whatever a connection plugin may raise is news about this node
            why = explained(one_line(f"{type(exc).__name__}: {exc}"))
            return NodeReply(self.name, verb, sent, time.monotonic(), None, why)
        return NodeReply(self.name, verb, sent, received, data, dropped=dropped)


class Messages:
    """Messages to several nodes.

    program: the one whose verbs are sent, where a message names no other. read: what is made of each answer.
    """

    def __init__(self, connections: Mapping[str, Way], program: NodeProgram, read: Reader = as_it_is) -> None:
        self.program = program
        self.read = read
        self.opening = threading.BoundedSemaphore(OPENED_AT_ONCE)
        self.answers: queue.Queue[NodeReply] = queue.Queue()
        self.threads = {name: NodeThread(connection, self) for name, connection in connections.items()}

    def open(self) -> None:
        for thread in self.threads.values():
            thread.start()

    def close(self) -> None:
        """Nothing more is asked: threads that carry no message end."""
        for thread in self.threads.values():
            thread.inbox.put(None)

    def ask(
        self,
        node: str,
        verb: str,
        payload: dict[str, Any],
        *,
        privileged: bool = False,
        delay: float = 0.0,
        program: NodeProgram | None = None,
    ) -> None:
        """Send behind what is already under way to this node, and not before `delay` seconds from now."""
        self.threads[node].inbox.put((program or self.program, verb, payload, privileged, time.monotonic() + delay))

    def next(self, timeout: float) -> NodeReply | None:
        try:
            return self.answers.get(timeout=timeout)
        except queue.Empty:
            return None

    def gather(
        self,
        verb: str,
        nodes: Collection[str],
        timeout: float,
        on_other: Callable[[NodeReply], None],
        give_up: Callable[[], bool] = lambda: False,
    ) -> dict[str, NodeReply]:
        """The answers of these nodes to one verb, in their order; a node that does not answer in time is missing."""
        found: dict[str, NodeReply] = {}
        deadline = time.monotonic() + timeout
        while len(found) < len(nodes) and time.monotonic() < deadline and not give_up():
            answer = self.next(0.2)
            if answer is not None and answer.verb == verb:
                found[answer.node] = answer
            elif answer is not None:
                on_other(answer)
        return {name: found[name] for name in nodes if name in found}
