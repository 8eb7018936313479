"""Inspects all nodes once, for all roles of a step and of the following steps.

Runs the inspections of all roles of the step on all nodes of the play, in one round trip, and evaluates the results as
the roles do. In a run of site.yml, the same round trip also makes the inspections for later steps, and caches their
results for the run. A role is skipped on nodes without differences. If an inspection failed or cannot be made remotely,
the role runs and inspects the node itself. After a role has run on a node, the node is inspected again before the next
step. With cluster_full, every role runs on every node, and cached results are compared with the new inspection.

Before the step network, the task fails if the firewall would block a service of any node that is neither in
firewall_allow nor in firewall_cut.

content: The nodes that need no role of the step.
needed: For each role of the step, the nodes on which it runs. installed_record, which runs at the end of the step
    pytorch, counts as a role.
why: For each role and each node on which the role runs, the differences.
looked_at: The nodes that were inspected by this task.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.module_utils.parsing.convert_bool import boolean

from muster.firewall import services
from muster.road.looks import FIREWALL, looks_of, to_come
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import chosen_tags
from muster_controller.playbook.variables import node_variables
from muster_controller.road.looks_kept import KeptLooks
from muster_controller.road.role_looks import RoleLooks


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Tag of the step.
        "step": {"type": "str", "choices": ["baseline", "network", "pytorch"], "required": True},
    }

    def work(self) -> dict[str, Any]:
        names = [name for name in self.task_vars["ansible_play_hosts"] if name in self.task_vars["groups"]["gpu_nodes"]]
        step = self.options["step"]
        cluster = node_variables(self.task_vars, self._templar, self._loader, names[0])
        looks = RoleLooks(self.task_vars, self._templar, self._loader, names)
        full = cluster["cluster_full"]
        kept = KeptLooks()
        steps = to_come(step, *chosen_tags(), road=boolean(self.task_vars.get("cluster_validated", False)))
        missing = [name for name in names if full or kept.of(step, name) is None]
        check = self._task.check_mode
        shift = looks.shift(check=check)
        of = looks.steps_of(step, steps)
        answers = looks.ask(self, missing, of, {"remembers": not check, "full": full}, shift) if missing else {}
        kept.keep(of, answers)
        seen = {name: kept.of(step, name) or {} for name in names}
        judged = looks.judge(step, seen)
        if step == "network" and not check:
            cut_off = looks.services_cut_off({name: seen[name] for name in judged.why.get(FIREWALL.role, ())})
            if stop := services.refusal(cut_off):
                return {"failed": True, "msg": stop}
        coming = {name for reasons in judged.why.values() for name in reasons}
        kept.forget(names if full else coming)
        kept.write()
        roles = [look.role for look in looks_of(step)]
        return {
            "content": [] if full else [name for name in names if name not in coming],
            "needed": {role: names if full else list(judged.why.get(role, {})) for role in roles},
            "why": judged.why,
            "looked_at": missing,
            "warnings": judged.warnings,
        }
