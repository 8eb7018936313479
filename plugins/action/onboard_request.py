"""Which nodes are to be onboarded, judged before any of them is touched.

Takes the nodes from one of node, nodes, nodes_file and ssh_config, and looks their addresses up where only names are
given. Says all that is wrong at once - with the request, and with the inventory as it would be with these nodes. A
node that is a member already is no mistake, and is left out. One whose onboarding was not finished goes on. Runs on
the controller, and contacts no node.

nodes: Those that are no members yet, each with its name and the variables that the inventory is to have.
onboarding: How far each of them has come, for the end of the run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.inventory.model import ip
from muster.onboard import request, standing
from muster_controller.members import asked_nodes, newcomers
from muster_controller.playbook.action import ControllerAction, Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.onboard.request import Asked


class ActionModule(ControllerAction):
    """Contacts no node."""

    OPTIONS: ClassVar[Options] = {
        # Node names, as a list or as text such as gpu[01-04],head.
        "node": {"type": "raw", "default": ""},
        # Addresses in the order of the names.
        "address": {"type": "raw", "default": ""},
        # Host key fingerprints in the order of the names.
        "host_key": {"type": "raw", "default": ""},
        # Number of GPUs per node to train on.
        "gpus": {"type": "int", "default": 0},
        # Mapping of names to addresses, or to mappings of address, host_key, gpus, user, port and training_address.
        "nodes": {"type": "dict", "default": {}},
        # File on the controller with one node per line, as name address [slots=N] or as address.
        "nodes_file": {"type": "str", "default": ""},
        # ssh config file on the controller. ssh -G resolves the settings of its hosts.
        "ssh_config": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        options = self.options
        asked, problems = asked_nodes.asked(options)
        known = newcomers.members(self.task_vars, self._templar, self._loader)
        nodes, more = request.resolved(asked, self._looked_up(asked, known))
        elsewhere = {name: group for name, group in self._others().items() if name not in known}
        problems += [*more, *standing.problems(nodes, known, elsewhere)]
        if not problems:
            problems = self._of_inventory(nodes, known)
        if problems:
            count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
            lines = [f"What is to be onboarded has {count}, and no node was contacted."]
            return {"failed": True, "msg": "\n".join([*lines, *(f"- {problem}" for problem in problems)])}
        stands = {node["name"]: standing.standing(known.get(node["name"])) for node in nodes}
        return {
            "nodes": [node for node in nodes if stands[node["name"]] != standing.MEMBER],
            "onboarding": {name: {"standing": stand} for name, stand in stands.items()},
        }

    def _looked_up(self, asked: Sequence[Asked], known: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
        """Where a name leads: of one that the inventory has, what it says there counts."""
        places = {one.name: one.address or one.name for one in asked}
        ours = {
            name: [known[name]["address"]]
            for name, place in places.items()
            if place == name and known.get(name, {}).get("address")
        }
        return {**newcomers.looked_up(place for place in places.values() if not ip(place)), **ours}

    def _others(self) -> dict[str, str]:
        """Names of the inventory, and a group of each."""
        groups = self.task_vars["groups"]
        return {name: group for group, names in groups.items() if group != "all" for name in names}

    def _of_inventory(self, nodes: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> list[str]:
        """What would be wrong with the inventory once it had these nodes."""
        place = newcomers.place(self.task_vars)
        fresh = [{**node, "variables": {**place, **node["variables"]}} for node in nodes if node["name"] not in known]
        task = self._task.copy()
        task.action, task.args = "validate_inventory", {"connects": True}
        judge = self._shared_loader_obj.action_loader.get(
            "validate_inventory",
            task,
            self._connection,
            self._play_context,
            self._loader,
            self._templar,
            self._shared_loader_obj,
        )
        result = judge.run(task_vars=newcomers.counted_in(self.task_vars, fresh))
        lines = str(result["msg"]).splitlines()[1:] if result.get("failed") else []
        return [line.removeprefix("- ") for line in lines]
