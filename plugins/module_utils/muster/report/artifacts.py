"""The artifacts of a run, as parsed from its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.planned import LaunchPlan

NO_NODES = ("controller", "localhost", "cluster")  # names in findings and failures that are not nodes


@dataclass(frozen=True)
class Artifacts:
    """The artifacts of one run. Each part has the content of its file. If the file is missing, the part is empty, or
    None for the plan.

    run, inspect, verdict, plan, attempts, smoke, comparison, shared_data, network, diagnosis, evidence, drift: the
    files with these names. health: by node. logs: the files of each node, as paths relative to the run's folder.
    history: the run.json of every kept run of this cluster, including this one, newest first.
    """

    run: Mapping[str, Any] = field(default_factory=dict)
    inspect: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    plan: LaunchPlan | None = None
    attempts: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    comparison: Mapping[str, Any] = field(default_factory=dict)
    shared_data: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    drift: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()

    def nodes(self) -> list[str]:
        """Return every node that an artifact names, in inventory order if the order is known."""
        named = [
            *self.run.get("nodes", []),
            *self.network.get("nodes", []),
            *(self.plan.names if self.plan else ()),
            *self.health,
            *(finding["node"] for finding in self.verdict.get("findings", [])),
            *(failure["node"] for failure in self.run.get("failures", [])),
        ]
        return [name for name in dict.fromkeys(named) if name not in NO_NODES]
