"""All that the probe saw, and what the inventory says of the launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .links import Link, Node

FIRST_UNPRIVILEGED = 1024


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

    @property
    def privileged_port(self) -> bool:
        """Whether only root may listen on the master port, which the probe is not."""
        return self.port < FIRST_UNPRIVILEGED

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
