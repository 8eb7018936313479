"""Quarantines the node that has a hard fault of its own.

Acts on a fail from a short list of faults of hardware, with the reasons in muster/members/by_itself.py, and on
nothing else. What is unknown, a warning, or between two nodes never acts. Quarantines one node, and no second one
until a person has confirmed the first with playbooks/quarantine.yml, or ended its quarantine with
playbooks/release.yml. It never takes the last node that takes part in launches. Writes the inventory as
quarantine_nodes does; of one that is not Muster's to edit the lines are printed. Use it with run_once.

quarantined: The node, or nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster.health import by_itself
from muster.members.quarantine import OPTION, words
from muster.verdict.commands import playbook
from muster_controller.inventory import inventory_file
from muster_controller.members import members
from muster_controller.members.members import Members
from muster_controller.playbook.action import ControllerAction, Options


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Findings of the health verdict of the cluster.
        "findings": {"type": "list", "elements": "dict", "required": True},
    }

    def work(self) -> dict[str, Any]:
        cluster = Members(self, self.task_vars)
        said = {name: own[OPTION] for name, own in cluster.nodes.items()}
        decision = by_itself.decide(self.options["findings"], said, cluster.chosen)
        if not decision.node:
            return {"quarantined": "", "warnings": decision.notes}
        entry = members.quarantine_entry(decision.reason, automatic=True)
        check = bool(self._task.check_mode)
        written = inventory_file.set_variables(cluster.sources, {decision.node: {OPTION: entry}}, check=check)
        if written.by_hand:
            lines = "\n".join([f"{decision.node} has to be quarantined, in an inventory of yours:", *written.by_hand])
            return {"quarantined": "", "warnings": [*decision.notes, lines]}
        answer = cluster.ask("keep", {decision.node: {"check": check, "quarantine": entry}})[decision.node]
        notes = [f"{decision.node} did not answer: {answer.error}."] if answer.error else []
        done = f"{decision.node} is quarantined by itself{words(entry)}. Once a person has looked at it:"
        confirm = playbook("playbooks/quarantine.yml", node=decision.node, reason="...")
        release = playbook("playbooks/release.yml", node=decision.node)
        return {
            "changed": written.changed,
            "diff": written.diffs,
            "quarantined": decision.node,
            "warnings": [f"{done} {confirm} or {release}", *notes, *decision.notes],
        }
