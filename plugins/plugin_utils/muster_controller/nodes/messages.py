"""Messages to the nodes of a launch and their responses. Each node has a thread: a hanging node does not delay others.

All times are on the monotonic clock, so changes of the wall clock do not affect timeouts.
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

OPENED_AT_ONCE = 32  # connections; each starts processes on the controller and a login on the node
OPENING = 3.0  # seconds that a connection waits for others, which may hang


def as_it_is(_node: str, _verb: str, data: Any) -> tuple[Any, tuple[str, ...]]:
    return data, ()


@dataclass(frozen=True)
class NodeReply:
    """The result of one message. `sent` and `received` are on the monotonic clock. If there is no data, `error`
    contains the reason.

    data: the result of the program's verb, as in muster/launch/messages.py. dropped: the invalid parts, which data does
    not contain.
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
    """Sends one message at a time to one node. Runs as a daemon thread, so that a hanging connection does not delay the
    exit."""

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
            return NodeReply(self.name, verb, sent, received, None, f"invalid response to {verb}: {exc}")
        except Exception as exc:  # any exception of a connection plugin is an error of this node
            why = explained(one_line(f"{type(exc).__name__}: {exc}"))
            return NodeReply(self.name, verb, sent, time.monotonic(), None, why)
        return NodeReply(self.name, verb, sent, received, data, dropped=dropped)


class Messages:
    """Sends messages to several nodes.

    program: the program that handles messages by default. read: parses each response.
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
        """End the threads that are not sending a message."""
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
        """Send a message after all earlier messages to this node, but at least `delay` seconds from now."""
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
        """Return the responses of these nodes to one verb, in this order. The result omits nodes that do not respond in
        time."""
        found: dict[str, NodeReply] = {}
        deadline = time.monotonic() + timeout
        while len(found) < len(nodes) and time.monotonic() < deadline and not give_up():
            answer = self.next(0.2)
            if answer is not None and answer.verb == verb:
                found[answer.node] = answer
            elif answer is not None:
                on_other(answer)
        return {name: found[name] for name in nodes if name in found}
