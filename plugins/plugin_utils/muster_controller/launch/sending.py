"""The project of a launch on its way to the nodes, and whether each has what was sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch.occupied import TAKEN
from muster.launch.preflight import without_project
from muster_controller.nodes.distribution import Distribution, DistributionNode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.launch.messages import ProjectRequest
    from muster.launch.preflight import Prepared
    from muster_controller.nodes.messages import Messages
    from muster_controller.playbook.interruption import Interruption

    from .settings import Settings

STORE = "store"  # beside the folder of all launches of whoever launches
COPY_TIMEOUT = 60.0  # seconds, beside those of any start, for a node to make the launch's own copy


class Sending:
    def __init__(
        self,
        settings: Settings,
        messages: Messages,
        say: Callable[[str], None],
        interruption: Interruption,
    ) -> None:
        self.project = settings.project
        self.store = ""  # the folder on every node, once it is known whose launch it is
        self.messages = messages
        self.say = say
        self.interruption = interruption
        self.done = False

    @property
    def request(self) -> ProjectRequest | None:
        return {"store": self.store, "digest": self.project.digest} if self.project else None

    def after(self, prepared: Prepared) -> Prepared:
        """Send it once, as soon as nothing stands against the launch but what it waits for."""
        stops = any(finding.status in ("fail", "unknown") and finding.id != TAKEN.id for finding in prepared.findings)
        if self.project is None or self.done or stops or self.interruption.came:
            return prepared
        plan = prepared.plan
        self.store = str(Path(plan.head.run_dir).parents[1] / STORE)
        places = {entry.node: DistributionNode(entry.address, self.store) for entry in plan.nodes}
        distribution = Distribution(
            places, plan.master_port, self.messages, self.say, lambda: self.interruption.came, privileged=True
        )
        failures = distribution.bring(self.project)
        prepared.findings += without_project(failures)
        self.done = not failures
        return prepared

    def changed(self, started: Mapping[str, Any]) -> str:
        """Return what is wrong with a node's copy, as it has read it behind everything else; or nothing."""
        if self.project is None or started.get("project") == self.project.digest:
            return ""
        return "its copy of the project is not what was sent: something changed it there"
