"""Makes first contact with the nodes to onboard.

Queries the host keys of all nodes in parallel, shows the table of fingerprints, prompts once, and pins the new keys;
see host_keys. Then logs in on each node through a shell, and checks that its Python is new enough and that becoming
root works. Changes nothing on the nodes. A node that cannot be onboarded is reported in one sentence and does not
affect other nodes. Fails if no node can be onboarded.

met: Nodes that can be onboarded. looked_at is false if check mode prevented the login. by_password is true if the login
    used a password.
nodes: The decisions on the host keys; see host_keys.
onboarding: For each node that cannot be onboarded, the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from muster.network import trust
from muster.verdict.commands import again, playbook
from muster_controller.members import newcomers
from muster_controller.network.first_contact import met
from muster_controller.network.trusting import compare_and_pin, say
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.terminal import typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster_controller.nodes.connection import NodeConnection

UNKNOWN_KEY = (
    "not inspected: the host key is not pinned yet, so --check does not log in. The changes on this node are unknown"
)


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # New nodes with their names and inventory variables.
        "nodes": {"type": "list", "elements": "dict", "required": True},
        # known_hosts file of the inventory.
        "known_hosts": {"type": "str", "default": ""},
        # Trusts new host keys without a prompt.
        "confirmed": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        place = newcomers.place(self.task_vars)
        nodes = {one["name"]: {**one, "variables": {**place, **one["variables"]}} for one in self.options["nodes"]}
        names = list(nodes)
        if not nodes:
            return {"met": [], "onboarding": {}}
        # A node that is already in the inventory has the variables from there, overridden by the new ones.
        task_vars = newcomers.counted_in(self.task_vars, list(nodes.values()))
        project = str(Path(self.options["known_hosts"] or f"{place['inventory_dir']}/known_hosts").resolve())
        confirmed = self.options["confirmed"]
        trusted = compare_and_pin(
            self, task_vars, names, project, confirmed=confirmed, again=again(trust_confirmed="true")
        )
        refused = {row.node: sentence(row, project, nodes[row.node]) for row in trusted.rows}
        pinned = [row.node for row in trusted.rows if not row.action or not self._task.check_mode]
        asked = [name for name in names if not refused[name] and name in pinned]
        connections = {name: connect(self, name, task_vars) for name in asked}
        refused.update(met(connections))
        unseen = {name: UNKNOWN_KEY for name in names if not refused[name] and name not in asked}
        good = [
            {
                **nodes[name],
                "looked_at": name in asked,
                "by_password": name in asked and has_password(connections[name]),
            }
            for name in names
            if not refused[name]
        ]
        refusals = {name: why for name, why in refused.items() if why}
        told = {name: {"why": why} for name, why in refusals.items()}
        result = {**trusted.result, "met": good, "onboarding": told}
        for name, why in {**refusals, **unseen}.items() if good else ():
            say(typed(f"{name}: {why}."))
        if not good:
            lines = [f"{name}: {why}." for name, why in refused.items()]
            result.update(failed=True, msg="\n".join(lines))
        return result


def has_password(node: NodeConnection) -> bool:
    return node.connection.transport == "ssh" and bool(node.connection.get_option("password"))


def sentence(row: trust.HostKeyDecision, project: str, node: Mapping[str, Any]) -> str:
    """Return why the host key prevents the onboarding of this node, or an empty string."""
    if row.state == "no answer":
        return f"no response: {row.why}"
    if row.action != "refuse":
        return ""
    why = trust.sentences([row], project)[0].removeprefix(f"{row.node}: ").rstrip(".")
    if row.key:
        own = playbook(
            "playbooks/onboard.yml",
            node=row.node,
            address=node["variables"]["ansible_host"],
            host_key=row.key.fingerprint,
        )
        why = why.replace(playbook("playbooks/trust.yml", trust_replace=row.node), own)
    return why
