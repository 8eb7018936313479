"""Leaves nodes out of launches, or lets them take part again.

Writes cluster_quarantined with reason, date and name into the inventory, or takes it out. A YAML inventory keeps its
comments, order and style; of another one the lines are printed that somebody has to write. The inventory decides. A
node that answers is given a copy, by which a launch is refused that follows an inventory which says nothing of it,
such as an older copy of it. A launch that runs on a node is named, and left alone. Use it with run_once. Nodes are
contacted by the connections that the inventory gives them.

outcome: The result, in one sentence.
silent: By node that did not answer, why.
running: Sentences on launches that run on these nodes.
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
            again = "Then type the same command again, so that the nodes know it too."
            raise AnsibleActionFail("\n".join(["The inventory is not Muster's to edit.", *written.by_hand, again]))
        running, silent, changed = self.nodes(cluster, wanted)
        return {
            "changed": written.changed or changed,
            "diff": written.diffs,
            "running": running,
            "silent": silent,
            "warnings": [f"{one}, and is left alone." for one in running] + self.unheard(silent),
            "outcome": self.outcome(cluster, names, wanted),
        }

    def refuse_what_a_group_says(self, cluster: Members, names: list[str]) -> None:
        """A node that is quarantined with others, by a group, is not released alone."""
        quarantined = [name for name in names if self.release and cluster.nodes[name][OPTION]]
        alone = {
            name: inventory_file.unset_variables(cluster.sources, {name: [OPTION]}, check=True) for name in quarantined
        }
        of_groups = [name for name, one in alone.items() if not one.changed and not one.by_hand]
        if of_groups:
            what = f"{few(of_groups)}: {OPTION} comes from a group (group_vars, or vars in the inventory)."
            raise AnsibleActionFail(f"Nothing was changed. {what} Take it away there.")

    def wanted(self, now: bool | dict[str, Any]) -> dict[str, Any]:
        """What the inventory says of a node afterwards."""
        fresh = quarantine_entry(self.reason)
        return dict(now) if isinstance(now, dict) and quarantine.keeps(now, fresh) else fresh

    def write(self, cluster: Members, wanted: dict[str, dict[str, Any]]) -> inventory_file.InventoryEdits:
        check = self._task.check_mode
        if self.release:
            return inventory_file.unset_variables(cluster.sources, {name: [OPTION] for name in wanted}, check=check)
        fresh = {name: {OPTION: one} for name, one in wanted.items() if one != cluster.nodes[name][OPTION]}
        return inventory_file.set_variables(cluster.sources, fresh, check=check)

    def nodes(self, cluster: Members, wanted: dict[str, dict[str, Any]]) -> tuple[list[str], dict[str, str], bool]:
        """Have each node keep its copy, or forget it: launches that run there, who did not answer, whether anything
        changed."""
        check = bool(self._task.check_mode)
        requests = {name: {"check": check, "quarantine": one} for name, one in wanted.items()}
        answers = cluster.ask("forget" if self.release else "keep", requests)
        silent = {name: answer.error for name, answer in answers.items() if answer.error}
        answering = [name for name in wanted if name not in silent]
        running = {} if self.release or not answering else cluster.launches(answering, answering)[0]
        return list(running.values()), silent, any(answers[name].data.get("changed") is True for name in answering)

    def unheard(self, silent: dict[str, str]) -> list[str]:
        if self.release:
            late = "its own copy still refuses launches by name, until this is typed again when it answers"
        else:
            late = "the inventory alone says so, which is what counts"
        return [f"{name} did not answer ({why}): {late}." for name, why in silent.items()]

    def outcome(self, cluster: Members, names: list[str], wanted: dict[str, dict[str, Any]]) -> str:
        if self.release:
            ranks = quarantine.ranks_said(cluster.taking_part(again=names))
            return f"{few(names)} {'takes' if len(names) == 1 else 'take'} part in launches again; {ranks}"
        ranks = quarantine.ranks_said(cluster.taking_part(without=names))
        words = quarantine.words(wanted[names[0]])
        return f"{few(names)} {'is' if len(names) == 1 else 'are'} quarantined{words}; {ranks}"
