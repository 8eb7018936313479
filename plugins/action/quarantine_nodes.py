"""Excludes nodes from launches, or includes them again.

Adds cluster_quarantined with reason, date and user name to the inventory, or removes it. A YAML inventory keeps its
comments, order and style. For other types of inventories the lines to write are printed. The inventory is
authoritative. Each reachable node also stores a copy of its quarantine. If a launch uses an inventory without the
quarantine, for example an outdated one, the copy blocks the launch. A launch that is running on a node is reported, but
not stopped. Contacts the nodes with the connection settings of the inventory; use it with run_once.

outcome: The result in one sentence.
silent: For each node that did not respond, the reason.
running: Sentences about launches that are running on these nodes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible import context
from ansible.errors import AnsibleActionFail

from muster.members import quarantine
from muster.members.quarantine import OPTION
from muster.verdict.words import few
from muster_controller.inventory import inventory_file
from muster_controller.members.members import Members, quarantine_entry
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import sentence


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Names of the nodes.
        "nodes": {"type": "list", "elements": "str", "default": []},
        # Reason of the quarantine.
        "reason": {"type": "str", "default": ""},
        # Lifts the quarantine.
        "release": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        cluster = Members(self, self.task_vars)
        names = list(dict.fromkeys(self.options["nodes"]))
        self.release = self.options["release"]
        self.reason = sentence(context.CLIARGS, "reason") or self.options["reason"]
        reason = None if self.release else self.reason
        if found := quarantine.problems(names, list(cluster.nodes), cluster.chosen, reason):
            raise AnsibleActionFail("Nothing was changed. " + " ".join(found))
        self.refuse_what_a_group_says(cluster, names)
        wanted = {name: self.wanted(cluster.nodes[name][OPTION]) for name in names}
        written = self.write(cluster, wanted)
        if written.by_hand:
            again = "Then run the same command again to update the nodes."
            raise AnsibleActionFail("\n".join(["Muster cannot edit this inventory.", *written.by_hand, again]))
        running, silent, changed = self.nodes(cluster, wanted)
        return {
            "changed": written.changed or changed,
            "diff": written.diffs,
            "running": running,
            "silent": silent,
            "warnings": [f"{one}; the launch is not stopped." for one in running] + self.unheard(silent),
            "outcome": self.outcome(cluster, names, wanted),
        }

    def refuse_what_a_group_says(self, cluster: Members, names: list[str]) -> None:
        """Reject the release of a node whose quarantine is set for a group."""
        quarantined = [name for name in names if self.release and cluster.nodes[name][OPTION]]
        alone = {
            name: inventory_file.unset_variables(cluster.sources, {name: [OPTION]}, check=True) for name in quarantined
        }
        of_groups = [name for name, one in alone.items() if not one.changed and not one.by_hand]
        if of_groups:
            what = f"{few(of_groups)}: {OPTION} is set in a group (group_vars, or vars in the inventory)."
            raise AnsibleActionFail(f"Nothing was changed. {what} Remove it there.")

    def wanted(self, now: bool | dict[str, Any]) -> dict[str, Any]:
        """Return the quarantine entry of a node in the new inventory."""
        fresh = quarantine_entry(self.reason)
        return dict(now) if isinstance(now, dict) and quarantine.keeps(now, fresh) else fresh

    def write(self, cluster: Members, wanted: dict[str, dict[str, Any]]) -> inventory_file.InventoryEdits:
        check = self._task.check_mode
        if self.release:
            return inventory_file.unset_variables(cluster.sources, {name: [OPTION] for name in wanted}, check=check)
        fresh = {name: {OPTION: one} for name, one in wanted.items() if one != cluster.nodes[name][OPTION]}
        return inventory_file.set_variables(cluster.sources, fresh, check=check)

    def nodes(self, cluster: Members, wanted: dict[str, dict[str, Any]]) -> tuple[list[str], dict[str, str], bool]:
        """Store or remove each node's copy of its quarantine. Return running launches, nodes without a response, and
        whether a copy changed."""
        check = bool(self._task.check_mode)
        requests = {name: {"check": check, "quarantine": one} for name, one in wanted.items()}
        answers = cluster.ask("forget" if self.release else "keep", requests)
        silent = {name: answer.error for name, answer in answers.items() if answer.error}
        answering = [name for name in wanted if name not in silent]
        running = {} if self.release or not answering else cluster.launches(answering, answering)[0]
        return list(running.values()), silent, any(answers[name].data.get("changed") is True for name in answering)

    def unheard(self, silent: dict[str, str]) -> list[str]:
        if self.release:
            late = "the copy on the node still blocks launches; run this command again when the node is reachable"
        else:
            late = "the node has no copy; the quarantine in the inventory is effective"
        return [f"{name} did not respond ({why}): {late}." for name, why in silent.items()]

    def outcome(self, cluster: Members, names: list[str], wanted: dict[str, dict[str, Any]]) -> str:
        if self.release:
            ranks = quarantine.ranks_said(cluster.taking_part(again=names))
            return f"{few(names)} {'takes' if len(names) == 1 else 'take'} part in launches again; {ranks}"
        ranks = quarantine.ranks_said(cluster.taking_part(without=names))
        words = quarantine.words(wanted[names[0]])
        return f"{few(names)} {'is' if len(names) == 1 else 'are'} quarantined{words}; {ranks}"
