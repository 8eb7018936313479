"""Stub for the messages to the nodes of a launch. Every node answers immediately from a table."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

from muster.verdict.reading import UnusableError
from muster_controller.launch.launch_messages import LaunchMessages
from muster_controller.nodes.messages import NodeReply, as_it_is

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from muster.launch.answers import Reader


class AnsweringNodes(LaunchMessages):
    """Nodes that answer from a table. table: answers by node and verb, in order. An answer is data, or an error as
    text.

    If no answer is left for a verb, the node does not answer.
    """

    def __init__(self, table: dict[tuple[str, str], list[Any]], read: Reader = as_it_is) -> None:
        self.answers = queue.Queue()
        self.threads = {}
        self.read = read
        self.table = table
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def ask(self, node: str, verb: str, payload: dict[str, Any], **_how: Any) -> None:
        self.asked.append((node, verb, payload))
        left = self.table.get((node, verb), [])
        if left:
            given = left.pop(0)
            self.answers.put(self.answer(node, verb, given))

    def answer(self, node: str, verb: str, given: Any) -> NodeReply:
        if isinstance(given, str):
            return NodeReply(node, verb, 0.0, 1.0, None, given)
        try:
            data, dropped = self.read(node, verb, given)
        except UnusableError as exc:
            return NodeReply(node, verb, 0.0, 1.0, None, str(exc))
        return NodeReply(node, verb, 0.0, 1.0, data, dropped=dropped)

    def gather(
        self,
        verb: str,
        nodes: Collection[str],
        timeout: float,
        on_other: Callable[[NodeReply], None],
        give_up: Callable[[], bool] = lambda: False,
    ) -> dict[str, NodeReply]:
        """Shorten the timeout, because answers that are not in the table never arrive."""
        return super().gather(verb, nodes, min(timeout, 0.01), on_other, give_up)
