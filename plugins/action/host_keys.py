"""First contact with many nodes: compare and pin their host keys.

Queries the SSH host key of every node of the group gpu_nodes in the play in parallel, with the address, port, jump host
and host key alias that ssh uses, without logging in. Shows a table of fingerprints, prompts once for all new keys, and
pins them in known_hosts. A key that matches the node's cluster_host_key is pinned without a prompt. A key that differs
from cluster_host_key or from a pinned key is rejected, and no key of that node is pinned. Runs on the controller. Nodes
that do not respond do not affect other nodes.

nodes: The key of each node, and the decision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from muster.network import trust
from muster.verdict.commands import playbook
from muster_controller.network.trusting import compare_and_pin
from muster_controller.playbook.action import ControllerAction, Options

if TYPE_CHECKING:
    from collections.abc import Sequence

TRUST = playbook("playbooks/trust.yml")


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # known_hosts file of the inventory.
        "known_hosts": {"type": "path", "required": True},
        # Trusts new keys without a prompt.
        "confirmed": {"type": "bool", "default": False},
        # Nodes with an expected key change.
        "replace": {"type": "list", "elements": "str", "default": []},
    }

    def work(self) -> dict[str, Any]:
        project = str(Path(self.options["known_hosts"]).resolve())
        everybody = self.task_vars["groups"]["gpu_nodes"]
        names = [name for name in everybody if name in self.task_vars["ansible_play_hosts_all"]]
        replace = self.options["replace"]
        strangers = [name for name in replace if name not in names]
        if strangers:
            raise AnsibleActionFail(f"trust_replace contains {', '.join(strangers)}, which is not in gpu_nodes.")
        again = playbook("playbooks/trust.yml", trust_confirmed="true")
        if replace:
            again += f" -e trust_replace={','.join(replace)}"
        if boolean(self.task_vars.get("trust_copy_key", False)):  # copying the key was requested as well
            again += " -e trust_copy_key=true"
        if context.CLIARGS.get("ask_pass"):
            again += " --ask-pass"
        confirmed = self.options["confirmed"]
        trusted = compare_and_pin(
            self, self.task_vars, names, project, confirmed=confirmed, replace=replace, again=again
        )
        return self._judged(trusted.result, trusted.rows, project)

    def _judged(self, result: dict[str, Any], rows: Sequence[trust.HostKeyDecision], project: str) -> dict[str, Any]:
        refused = trust.sentences(rows, project)
        silent = [row for row in rows if row.state == "no answer"]
        if refused:
            result.update(failed=True, msg="\n".join(refused))
        elif silent and len(silent) == len(rows):
            result.update(
                failed=True, msg="No node responded.\n" + "\n".join(f"{row.node}: {row.why}" for row in silent)
            )
        elif silent:
            names = ", ".join(row.node for row in silent)
            result["warnings"] = [f"{names} did not respond. When reachable again, run {TRUST}."]
        return {**result, "outcome": trust.outcome(rows)}
