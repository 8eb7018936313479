"""Finds an idle member for each new node.

Queries all members in parallel for the holders of launch resources and for the users of the GPUs. A member that does
not respond, or whose state is unknown, is not idle.

pairs: For each new node, the nodes of a launch on this node and an idle member.
witness: A member that responds.
idle: All idle members.
busy: For each other member, why it is not idle.
onboarding: The checks that were skipped.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.utils.display import Display

from muster.onboard import partner
from muster_controller.members import newcomers
from muster_controller.nodes.connection import connect
from muster_controller.nodes.idle import busy
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import node_variables


class ActionModule(ControllerAction):
    """Inspects the members in parallel, and changes nothing."""

    OPTIONS: ClassVar[Options] = {
        # New nodes.
        "new": {"type": "list", "elements": "str", "required": True},
    }

    def work(self) -> dict[str, Any]:
        new = list(self.options["new"])
        known = newcomers.members(self.task_vars, self._templar, self._loader)
        onboarded = self.task_vars["groups"].get("onboarding", [])
        members = [name for name, own in known.items() if not own["quarantined"] and name not in onboarded]
        connections = {name: connect(self, name, self.task_vars) for name in members}
        own = {name: node_variables(self.task_vars, self._templar, self._loader, name) for name in members}
        found = busy(connections, own)
        pairs = partner.pairs(new, found)
        why = partner.left_out(found)
        alone = [name for name, member in pairs.items() if not member]
        for name in alone:
            Display().display(f"{name}: {why}.")
        return {
            "pairs": {name: [member, name] for name, member in pairs.items() if member},
            "witness": next((name for name, why in found.items() if partner.answered(why)), ""),
            "idle": [name for name in members if not found[name]],
            "busy": {name: why for name, why in found.items() if why},
            "onboarding": {name: {"notes": [why]} for name in alone},
        }
