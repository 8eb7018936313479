"""Determines and validates the nodes to onboard before any of them is changed.

Takes the nodes from one of node, nodes, nodes_file and ssh_config, and resolves names without an address. Reports all
problems of the request at once, and all problems that the inventory would have with these nodes. A node that is already
a member is skipped without an error. An unfinished onboarding is continued. Runs on the controller and contacts no
node.

nodes: The nodes that are not yet members, with their names and the variables to write into the inventory.
onboarding: The progress of each node, to report it at the end of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from muster.inventory.model import ip
from muster.onboard import request, standing
from muster_controller.members import newcomers, onboarding
from muster_controller.playbook.action import ControllerAction, Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.onboard.request import NewNode


class ActionModule(ControllerAction):
    ROLE = "onboard"
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        options = self.options
        asked, problems = onboarding.asked(options)
        known = newcomers.members(self.task_vars, self._templar, self._loader)
        nodes, more = request.resolved(asked, self._looked_up(asked, known))
        elsewhere = {name: group for name, group in self._others().items() if name not in known}
        problems += [*more, *standing.problems(nodes, known, elsewhere)]
        if not problems:
            problems = self._of_inventory(nodes, known)
        if problems:
            count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
            lines = [f"The onboarding request has {count}; no node was contacted."]
            return {"failed": True, "msg": "\n".join([*lines, *(f"- {problem}" for problem in problems)])}
        stands = {node["name"]: standing.standing(known.get(node["name"])) for node in nodes}
        return {
            "nodes": [node for node in nodes if stands[node["name"]] != standing.MEMBER],
            "onboarding": {name: {"standing": stand} for name, stand in stands.items()},
        }

    def _looked_up(self, asked: Sequence[NewNode], known: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
        """Resolve the names of the nodes. If the inventory contains a node, use the address in the inventory."""
        places = {one.name: one.address or one.name for one in asked}
        ours = {
            name: [known[name]["address"]]
            for name, place in places.items()
            if place == name and known.get(name, {}).get("address")
        }
        return {**newcomers.looked_up(place for place in places.values() if not ip(place)), **ours}

    def _others(self) -> dict[str, str]:
        """Return all names in the inventory, each with one group that contains it."""
        groups = self.task_vars["groups"]
        return {name: group for group, names in groups.items() if group != "all" for name in names}

    def _of_inventory(self, nodes: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> list[str]:
        """Return the problems that the inventory would have with these nodes."""
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
