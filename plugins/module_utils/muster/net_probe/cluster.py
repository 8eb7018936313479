"""All that the probe saw, and what the inventory says of the launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .links import Link, Node

FIRST_UNPRIVILEGED = 1024
LAUNCH = "muster-launch-"  # how the unit of a launch is called


def untried(served: Mapping[str, Any] | None, port: int) -> str:
    """Why the master port of a node is not called, "" where it is. served: what `serve` told there."""
    holder = served["holder"] if served else ""
    if holder.startswith(LAUNCH):
        return f"{holder} runs there, and is not disturbed"
    if holder and port < FIRST_UNPRIVILEGED:
        return f"only root may listen on port {port}: {holder}"
    return ""


@dataclass(frozen=True)
class Cluster:
    """nodes in the order of the inventory; left_out: {node: why} for those that were not asked."""

    nodes: list[Node]
    links: list[Link]
    head: str
    port: int
    participants: list[str]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
