"""Which nodes are to be onboarded, judged before any of them is touched; documented in library/onboard_request.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

import os

from ansible import context

from muster.inventory.model import ip
from muster.onboard import request, standing
from muster_controller import newcomers
from muster_controller.action import ControllerAction
from muster_node.tools.run import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.onboard.request import Asked


class ActionModule(ControllerAction):
    """Contacts no node."""

    def work(self) -> dict[str, Any]:
        options = self.options
        given = request.Given(
            **{name: options[name] for name in ("node", "address", "host_key", "gpus", "nodes")},
            nodes_file=options["nodes_file"],
            file=newcomers.text_of(options["nodes_file"]) if options["nodes_file"] else None,
            ssh_config=options["ssh_config"],
            config=newcomers.text_of(options["ssh_config"]) if options["ssh_config"] else None,
        )
        asked, problems = request.asked(given)
        if context.CLIARGS.get("subset"):
            problems.append("--limit is given, and names, keys and rules are the same for all nodes. Leave it out.")
        known = newcomers.members(self.task_vars, self._templar, self._loader)
        if options["ssh_config"]:
            asked = [self._of_ssh(one, options["ssh_config"]) for one in asked]
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

    def _of_ssh(self, one: Asked, config: str) -> Asked:
        own, plain = (settings(config, host) for host in (one.name, newcomers.NOWHERE))
        address, variables = request.of_ssh(own, plain)
        return request.Asked(one.name, address, {**variables, **one.variables}, one.where)

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
        return str(result["msg"]).splitlines()[1:] if result.get("failed") else []


def settings(config: str, host: str) -> dict[str, str]:
    """What ssh makes of a host with this config."""
    said = run("ssh", "-F", str(Path(config).expanduser()), "-G", host, env=os.environ, cwd=".")
    found: dict[str, str] = {}
    for line in said.text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, value)
    return found
