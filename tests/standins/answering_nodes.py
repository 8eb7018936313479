"""Stands in for the messages to the nodes of a launch: every node answers at once, from a table."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

from muster_controller.messages import Answer, Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class AnsweringNodes(Messages):
    """table: by node and verb, a list of what is answered, one after the other: data, or an error as text.

    A verb that has no answer left is not answered.
    """

    def __init__(self, table: dict[tuple[str, str], list[Any]]) -> None:
        self.answers = queue.Queue()
        self.table = table
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def ask(self, node: str, verb: str, payload: dict[str, Any], **_how: Any) -> None:
        self.asked.append((node, verb, payload))
        left = self.table.get((node, verb), [])
        if left:
            given = left.pop(0)
            data, error = (None, given) if isinstance(given, str) else (given, "")
            self.answers.put(Answer(node, verb, 0.0, 1.0, data, error))

    def gather(
        self,
        verb: str,
        nodes: Collection[str],
        timeout: float,
        on_other: Callable[[Answer], None],
        give_up: Callable[[], bool] = lambda: False,
    ) -> dict[str, Answer]:
        """Do not wait for what will never be answered."""
        return super().gather(verb, nodes, min(timeout, 0.01), on_other, give_up)
