"""First contact with many nodes: compare and pin their host keys; documented in library/host_keys.py."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.errors import AnsibleActionFail, AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.utils.display import Display

from muster.network import known_hosts, trust
from muster.verdict.commands import playbook
from muster_controller.action import ControllerAction
from muster_controller.connection import connect
from muster_controller.first_contact import Road, meet, read, road_to
from muster_controller.variables import node_variables
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AT_ONCE = 32
TRUST = playbook("playbooks/trust.yml")


class ActionModule(ControllerAction):
    """Asks every node for its host key, and logs in on none."""

    def work(self) -> dict[str, Any]:
        project = str(Path(self.options["known_hosts"]).resolve())
        everybody = self.task_vars["groups"]["gpu_nodes"]
        names = [name for name in everybody if name in self.task_vars["ansible_play_hosts_all"]]
        strangers = [name for name in self.options["replace"] if name not in names]
        if strangers:
            raise AnsibleActionFail(f"trust_replace names {', '.join(strangers)}, which is not in gpu_nodes.")
        rows = self._look(self.task_vars, names, project, self.options["replace"])
        before = read(project)
        say("\n".join(trust.table(rows)))
        for line in trust.leftover_lines(known_hosts.left_behind(before, everybody), project):
            say(line)
        if not self._task.check_mode and not self.options["confirmed"]:
            rows = self._confirmed(rows, self.options["replace"])
        after = before
        for row in rows:
            if row.action in ("pin", "ask") and row.key:
                after = known_hosts.pinned(after, row.node, row.host, row.key, replace=row.replace)
        if after != before and not self._task.check_mode:
            write(project, after)
        result = {"changed": after != before, "nodes": [self._told(row) for row in rows]}
        if after != before:
            result["diff"] = {"before": before, "after": after, "before_header": project, "after_header": project}
        return self._judged(result, rows, project)

    def _judged(self, result: dict[str, Any], rows: Sequence[trust.Row], project: str) -> dict[str, Any]:
        refused = trust.sentences(rows, project)
        silent = [row for row in rows if row.state == "no answer"]
        if refused:
            result.update(failed=True, msg="\n".join(refused))
        elif silent and len(silent) == len(rows):
            result.update(
                failed=True, msg="No node answered:\n" + "\n".join(f"{row.node}: {row.why}" for row in silent)
            )
        elif silent:
            names = ", ".join(row.node for row in silent)
            result["warnings"] = [f"{names} did not answer: run {TRUST} again when it does."]
        return result

    def _look(
        self, task_vars: Mapping[str, Any], names: list[str], project: str, replace: list[str]
    ) -> list[trust.Row]:
        roads = {name: self._road(task_vars, name) for name in names}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # Ansible keeps the current task in a context variable, which threads do not inherit.
            looks = [pool.submit(copy_context().run, meet, road, project, replace) for road in roads.values()]
            return [look.result() for look in looks]

    def _road(self, task_vars: Mapping[str, Any], name: str) -> Road:
        """The way to the node, as Ansible would take it."""
        wanted = node_variables(task_vars, self._templar, self._loader, name)["cluster_host_key"]
        return road_to(name, connect(self, name, task_vars).connection, wanted)

    def _confirmed(self, rows: list[trust.Row], replace: list[str]) -> list[trust.Row]:
        """The rows, when the user trusts what is new among them."""
        question = trust.question(rows)
        if not question:
            return rows
        try:
            answer = Display().prompt_until(f"\n{question} [yes/no]")
        except (AnsiblePromptNoninteractive, AnsiblePromptInterrupt):
            command = playbook("playbooks/trust.yml", trust_confirmed="true")
            if replace:
                command = playbook("playbooks/trust.yml", trust_confirmed="true", trust_replace=",".join(replace))
            raise AnsibleActionFail(f"Nothing was pinned. {question} When all is right, type: {command}") from None
        if answer.decode(errors="replace").strip().lower() not in ("y", "yes"):
            raise AnsibleActionFail("Nothing was pinned.")
        return rows

    def _told(self, row: trust.Row) -> dict[str, str]:
        key = row.key
        return {
            "node": row.node,
            "address": row.address,
            "type": key.type if key else "",
            "fingerprint": key.fingerprint if key else "",
            "state": row.state,
            "why": row.why,
        }


def say(text: str) -> None:
    if text:
        Display().display(text)


def write(path: str, text: str) -> None:
    """At once or not at all; what it holds is no secret, and everybody who works with the project may read it."""
    files.replace(path, text.encode("utf-8", "surrogateescape"), mode=0o644)
