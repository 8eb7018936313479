"""Majority votes over the values of nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .words import few

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Vote:
    """The result of a vote. holders: the nodes of each value, with the most common value first. usual: the value of
    more than half of the nodes, or None."""

    holders: dict[Any, list[str]]
    usual: Any

    @property
    def agree(self) -> bool:
        return len(self.holders) < 2

    @property
    def odd(self) -> list[tuple[str, Any]]:
        """Return the nodes that differ from the majority, with their values. If there is no majority, return all
        nodes."""
        return [(node, value) for value, nodes in self.holders.items() if value != self.usual for node in nodes]

    def spread(self) -> str:
        """List the values with their nodes: "1500 on node1, node2; 9000 on node3"."""
        return "; ".join(f"{value} on {few(nodes)}" for value, nodes in self.holders.items())


def vote(values: Mapping[str, Any]) -> Vote:
    """Count the values of the nodes. None means that a value is unknown or not applicable."""
    holders: dict[Any, list[str]] = defaultdict(list)
    for node, value in values.items():
        if value is not None:
            holders[value].append(node)
    ordered = dict(sorted(holders.items(), key=lambda item: -len(item[1])))
    total = sum(map(len, ordered.values()))
    usual = next((value for value, nodes in ordered.items() if len(nodes) * 2 > total), None)
    return Vote(ordered, usual)
