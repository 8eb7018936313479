"""The results of a probe, combined with the launch settings from the inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..launch.unit import LAUNCH_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .links import Link, Node

FIRST_UNPRIVILEGED = 1024


def untried(served: Mapping[str, Any] | None, port: int) -> str:
    """Return why the master port of a node is not tested; "" if it is tested. served: the node's result of `serve`."""
    holder = served["holder"] if served else ""
    if holder.startswith(LAUNCH_UNITS):
        return f"{holder} uses the port, and the probe does not interrupt it"
    if holder and port < FIRST_UNPRIVILEGED:
        return f"only root may listen on port {port}: {holder}"
    return ""


@dataclass(frozen=True)
class Cluster:
    """nodes: the probed nodes, in inventory order. left_out: why each other node was not probed. beats: heartbeat port
    of a detached launch, or None.
    """

    nodes: list[Node]
    links: list[Link]
    head: str
    port: int
    participants: list[str]
    left_out: dict[str, str] = field(default_factory=dict)
    beats: int | None = None

    @property
    def declared(self) -> tuple[int | None, ...]:
        """The ports that the inventory sets. All other ports are ephemeral."""
        return self.port, self.beats

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def link(self, origin: str, target: str) -> Link:
        return self._by_pair[origin, target]

    def touching(self, name: str) -> list[Link]:
        """Return the links that start or end at this node."""
        return self._by_node[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], Link]:
        return {(link.origin, link.target): link for link in self.links}

    @cached_property
    def _by_node(self) -> dict[str, list[Link]]:
        found: dict[str, list[Link]] = {node.name: [] for node in self.nodes}
        for link in self.links:
            found[link.origin].append(link)
            found[link.target].append(link)
        return found
