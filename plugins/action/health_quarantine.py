"""Quarantines a node with a hardware fault.

Acts only on failed checks that indicate certain hardware faults; muster/health/by_itself.py lists them with reasons.
Unknown results, warnings and faults between two nodes never cause a quarantine. Quarantines one node only. A second
node is quarantined only after an administrator has confirmed the first quarantine with playbooks/quarantine.yml or
ended it with playbooks/release.yml. The last node that takes part in launches is never quarantined. Writes the
inventory like quarantine_nodes. If Muster cannot edit the inventory, the lines to add are printed. Use it with
run_once.

quarantined: The quarantined node, or an empty string.
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
            lines = "\n".join([f"Muster cannot edit this inventory; quarantine {decision.node}:", *written.by_hand])
            return {"quarantined": "", "warnings": [*decision.notes, lines]}
        answer = cluster.ask("keep", {decision.node: {"check": check, "quarantine": entry}})[decision.node]
        notes = [f"{decision.node} did not respond: {answer.error}."] if answer.error else []
        done = f"{decision.node} was quarantined automatically{words(entry)}. After an inspection of the node, run"
        confirm = playbook("playbooks/quarantine.yml", node=decision.node, reason="...")
        release = playbook("playbooks/release.yml", node=decision.node)
        return {
            "changed": written.changed,
            "diff": written.diffs,
            "quarantined": decision.node,
            "warnings": [f"{done} {confirm} or {release}", *notes, *decision.notes],
        }
