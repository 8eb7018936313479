"""Copies the project of a launch to the nodes, and checks each copy."""

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

STORE = ".muster-store"  # in the folder of all launches of the user
COPY_TIMEOUT = 60.0  # additional seconds of a start in which a node makes the copy of the launch


class Sending:
    def __init__(
        self,
        settings: Settings,
        messages: Messages,
        say: Callable[[str], None],
        interruption: Interruption,
    ) -> None:
        self.project = settings.project
        self.store = ""  # the folder on every node, once the launch's user is known
        self.messages = messages
        self.say = say
        self.interruption = interruption
        self.done = False

    @property
    def request(self) -> ProjectRequest | None:
        return {"store": self.store, "digest": self.project.digest} if self.project else None

    def after(self, prepared: Prepared) -> Prepared:
        """Copy the project once, as soon as nothing blocks the launch except resources that it waits for."""
        stops = any(finding.status in ("fail", "unknown") and finding.id != TAKEN.id for finding in prepared.findings)
        if self.project is None or self.done or stops or self.interruption.came:
            return prepared
        plan = prepared.plan
        self.store = str(Path(plan.head.run_dir).parent / STORE)
        places = {entry.node: DistributionNode(entry.address, self.store) for entry in plan.nodes}
        distribution = Distribution(
            places, plan.master_port, self.messages, self.say, lambda: self.interruption.came, privileged=True
        )
        failures = distribution.bring(self.project)
        prepared.findings += without_project(failures)
        self.done = not failures
        return prepared

    def changed(self, started: Mapping[str, Any]) -> str:
        """Return the problem with the copy on a node, or "". The node reads its copy after all other steps."""
        if self.project is None or started.get("project") == self.project.digest:
            return ""
        return "the copy of the project was changed on the node and differs from the project that was sent"
