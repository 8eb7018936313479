"""Writes nodes that are being onboarded into the inventory.

Appends new nodes to gpu_nodes as quarantined nodes in the YAML files of the inventory, and keeps comments and order.
Lifts the quarantine of accepted nodes, and determines their node ranks. For other types of inventories, shows the lines
to write.

onboarding: For each node, whether it was written, and its node rank.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.utils.display import Display

from muster.members.quarantine import OPTION
from muster.onboard.standing import BEGUN
from muster_controller.inventory import inventory_file
from muster_controller.members import members, newcomers
from muster_controller.members.onboarding import ranks
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # New nodes with their names and inventory variables.
        "nodes": {"type": "list", "elements": "dict", "default": []},
        # Nodes whose quarantine is lifted.
        "names": {"type": "list", "elements": "str", "default": []},
        # Whether to add quarantined nodes or to make nodes members.
        "state": {"type": "str", "choices": ["quarantined", "member"], "required": True},
    }

    def work(self) -> dict[str, Any]:
        nodes, check = self.options["nodes"], self._task.check_mode
        sources = newcomers.sources()
        told: dict[str, dict[str, Any]]
        if self.options["state"] == "quarantined":
            wanted = {node["name"]: {**written(node["variables"]), **members.quarantined(BEGUN)} for node in nodes}
            outcome = inventory_file.add_nodes(sources, wanted, check=check)
            told = {name: {"written": not outcome.by_hand} for name in wanted}
        else:
            names = self.options["names"]
            gone = dict.fromkeys(names, (OPTION,))
            outcome = inventory_file.unset_variables(sources, gone, check=check)
            places = ranks(sources, self._loader)
            told = {name: {"accepted": not check, "rank": places.get(name)} for name in names}
        for text in outcome.by_hand:
            Display().warning(text)
        return {"changed": outcome.changed, "diff": outcome.diffs, "onboarding": told}


def written(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the variables to write for the node, without those that Ansible sets itself."""
    return {key: value for key, value in variables.items() if key not in newcomers.PLACES}
