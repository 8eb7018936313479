"""The same for an environment of cluster_environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail

from muster.pytorch import environments
from muster.pytorch.choice import Ask
from muster.pytorch.requirements import RequestedPackages, RequirementsError

from .environment_steps import EnvironmentSteps, lock_beside
from .environments import read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase


class NamedSteps(EnvironmentSteps):
    """An environment of cluster_environments: in a folder of its own, from a file of its own, with its own lock."""

    asked = RequestedPackages("", "", ())

    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        own = dict(arguments)
        self.name = name
        self.entry: Mapping[str, Any] = own.pop("environments")[name]
        root = own.pop("environments_root")
        own["lock"] = lock_beside(own.get("lock"), name)
        super().__init__(action, task_vars, own)
        self.arguments.update(root=environments.folder_of(root, name), ranges=True)
        if "python" in self.entry:
            self.arguments["python"] = self.entry["python"]

    def work(self, step: str) -> dict[str, Any]:
        """What goes wrong is kept in the result, and holds up no other environment."""
        try:
            asked = self.asked = read(self.entry, self.vars["inventory_dir"])
            default = self.arguments["torch_version"]
            self.arguments.update(
                torch_version=asked.torch_version or default,
                variant=asked.variant or self.arguments.get("variant", "auto"),
                packages=list(asked.packages),
            )
            if asked.torch_version not in ("", default):
                # What goes with the GPUs was found out for the other release.
                self.arguments["auto_variant"] = ""
            done = super().work(step)
        except (AnsibleActionFail, RequirementsError) as problem:
            done = {"failed": True, "msg": str(problem)}
        if "before" in done.get("diff", {}):
            done["diff"] |= dict.fromkeys(("before_header", "after_header"), f"environment {self.name}")
        if done.get("failed"):
            said = str(done.get("msg", "")).removeprefix(f"{self.node}: ")
            done["msg"] = (
                f"{self.node}: environment {self.name}: {environments.in_its_words(said, self.name, self.entry)}"
            )
        return done

    def _ask(self, values: Mapping[str, Any]) -> Ask:
        asked = self.asked
        return Ask(
            torch_version=asked.torch_version or values["cluster_torch_version"],
            variant=asked.variant or values["pytorch_variant"],
            gpus=values["cluster_gpus"],
            packages=asked.packages,
            ranges=True,
        )
