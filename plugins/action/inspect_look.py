"""Inspects all nodes in one round trip.

Inspects all nodes of the play in parallel. In a run of site.yml, the same round trip also makes the inspections for
later steps, as role_looks does, and caches their results for the run. A node that did not respond is missing from
nodes. node_inspect must then inspect the node separately, which reports the error; register the result under the same
name with the suffix _alone.

Services that the firewall would block stop the run, except in check mode or if the run does not include the step
network.

cut_off: Findings about services that the firewall would block.
stop: Why the run must stop before any change, because of these services; empty if it can continue.
nodes: For each node that responded, its facts, as returned by node_inspect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible.module_utils.parsing.convert_bool import boolean

from muster.firewall import services
from muster.road.looks import to_come
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import chosen_tags
from muster_controller.playbook.variables import node_variables
from muster_controller.road.looks_kept import KeptLooks
from muster_controller.road.role_looks import RoleLooks

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = "inspect"


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Result of inspect_plan.
        "plan": {"type": "dict", "default": {}},
        # Subjects of node_inspect.
        "only": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        names = [name for name in self.task_vars["groups"]["gpu_nodes"] if name in self.task_vars["ansible_play_hosts"]]
        if not names:
            return {"nodes": {}, "cut_off": [], "stop": ""}
        cluster = node_variables(self.task_vars, self._templar, self._loader, names[0])
        kept = KeptLooks()
        # An inspection of selected subjects uses the full inspection of this run.
        seen = {} if not self.options["only"] else {name: kept.of(STEP, name) or {} for name in names}
        missing = [name for name in names if STEP not in seen.get(name, {})]
        looks = RoleLooks(self.task_vars, self._templar, self._loader, names)
        road = boolean(self.task_vars.get("cluster_validated", False))
        steps = () if self.options["only"] else to_come(STEP, *chosen_tags(), road=road)
        if missing:
            seen |= self._ask(looks, missing, steps, kept, full=cluster["cluster_full"])
        cut_off = looks.services_cut_off(seen) if steps else {}
        stops = "network" in steps and not self._task.check_mode
        return {
            "nodes": {name: {"facts": one[STEP]["facts"]} for name, one in seen.items() if self._whole(one)},
            "cut_off": [one.as_dict() for name in cut_off for one in services.findings_of(name, cut_off[name])],
            "stop": services.refusal(cut_off) if stops else "",
        }

    def _ask(
        self, looks: RoleLooks, missing: list[str], steps: Sequence[str], kept: KeptLooks, *, full: bool
    ) -> dict[str, Any]:
        check, only = self._task.check_mode, self.options["only"]
        request = {"remembers": not check, "full": full}
        inspects = {name: self._options(name, only) for name in missing}
        of = looks.steps_of(STEP, steps)
        answers = looks.ask(self, missing, of, request, looks.shift(check=check), inspects)
        if not only:
            kept.keep({name: (STEP, *of[name]) for name in of}, {name: one for name, one in answers.items() if one})
            kept.write()
        return answers

    def _options(self, name: str, only: list[str]) -> dict[str, Any]:
        if only:
            return {"only": only, "user": "", "peers": [], "paths": [], "prefixes": []}
        plan = self.options["plan"]
        user, prefixes = plan["requests"][name]["cluster_user"], plan["prefixes"][name]
        return {"only": [], "user": user, "peers": plan["peers"], "paths": plan["writes"][name], "prefixes": prefixes}

    def _whole(self, seen: dict[str, Any]) -> bool:
        return "facts" in seen.get(STEP, {})
