"""The one step of an environment that somebody else has made: it is looked at in each run, and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.pytorch import environments
from muster.pytorch.existing import judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase


class ExistingSteps:
    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        self.action, self.vars, self.arguments, self.name = action, task_vars, arguments, name
        self.node: str = task_vars["inventory_hostname"]
        self.path = environments.existing(arguments["environments"][name])

    def work(self, step: str) -> dict[str, Any]:
        """What stands against it is kept in the result, and holds up no other environment."""
        if step != "look":
            return {"skipped": True, "skip_reason": "nothing is done to it"}
        own = self._own_folder()
        if own:
            return self._refused(
                f"{self.path} lies in {own}, where Muster builds and removes. Name it without a prefix"
            )
        given = {"node": self.node, "prefix": self.path, "user": self.arguments.get("user", "nobody")}
        seen: dict[str, Any] = self.action._execute_module("existing_env", given, task_vars=self.vars)
        if seen.get("failed") or "marks" not in seen:
            return seen
        found = judge(self.path, seen, seen["looked_as"])
        about = {"path": self.path, "made_by": found.made_by, "python": found.python, "torch": found.torch}
        if found.refusal:
            return {**self._refused(found.refusal), "existing": about}
        notes = [f"{self.node}: environment {self.name}: {note}." for note in found.notes]
        return {"changed": False, "existing": about, "warnings": notes}

    def _own_folder(self) -> str:
        roots = [str(self.arguments.get(option) or "").rstrip("/") for option in ("root", "environments_root")]
        return next((root for root in roots if root and f"{self.path}/".startswith(f"{root}/")), "")

    def _refused(self, why: str) -> dict[str, Any]:
        return {"failed": True, "msg": f"{self.node}: environment {self.name}: {why}."}
