"""Removes nodes from the cluster's inventory.

Removes nodes from the inventory and from the known_hosts file next to it. A YAML inventory keeps its comments, order
and style. For other types of inventories, the lines to change are printed, and nothing is done. Fails if a reachable
node reports a running launch with one of the nodes to remove. The removed nodes need not be reachable. A node that is
no longer in the inventory is not an error, so that an interrupted run can be repeated. The roles cluster_hosts,
ssh_mesh and firewall remove the node's data from the other nodes. Use it with run_once.

outcome: The result in one sentence.
unfinished: The access that removed nodes keep until the other nodes are updated, and the command for the update.
silent: For each node that did not report its launches, the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from muster.members import leaving
from muster.network.known_hosts import forgotten
from muster_controller.inventory import inventory_file
from muster_controller.members.members import Members, refuse, refuse_part
from muster_controller.network.first_contact import read
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.one_writer import one_writer
from muster_controller.playbook.terminal import terminal
from muster_node.tools import files


class ActionModule(ControllerAction):
    """Remove host keys last, because a repeated run needs the key of every node that is still in the inventory."""

    OPTIONS: ClassVar[Options] = {
        # look checks whether the nodes can leave and which nodes do not respond. leave removes them.
        "step": {"type": "str", "choices": ["look", "leave"], "default": "leave"},
        # Whether Muster is removed from the nodes first. Nodes that do not respond are reported.
        "wipe": {"type": "bool", "default": False},
        # Whether the driver is removed as well. Requires wipe.
        "wipe_driver": {"type": "bool", "default": False},
        # Names of the nodes.
        "nodes": {"type": "list", "elements": "str", "default": []},
        # known_hosts file of the inventory.
        "known_hosts": {"type": "path", "required": True},
    }

    def work(self) -> dict[str, Any]:
        refuse_part(leaving.TRUST)
        cluster = Members(self, self.task_vars)
        names = list(dict.fromkeys(self.options["nodes"]))
        nodes = list(cluster.nodes)
        wiping = {name: self.options[name] for name in ("wipe", "wipe_driver")}
        refuse(leaving.problems(names, nodes, cluster.chosen, **wiping))
        # Before any node is contacted, because unreachable nodes cause a long wait.
        written = inventory_file.remove_nodes(cluster.sources, names, check=True)
        if written.by_hand:
            again = "Then run the same command again to remove the node from the other nodes."
            refuse(["Muster cannot edit this inventory.", *written.by_hand, again])
        running, heard = cluster.launches(nodes, names)
        peers = [name for name in nodes if name not in names]
        refuse(leaving.in_the_way(running, peers, heard.silent))
        if self.options["step"] == "look":
            return {"silent": heard.silent}
        if not self._task.check_mode:
            written = inventory_file.remove_nodes(cluster.sources, names)
        diffs = [*written.diffs, *self.forget_keys(names)]
        return {
            "changed": bool(diffs),
            "diff": diffs,
            "silent": heard.silent,
            "warnings": leaving.warnings(names, nodes, heard.silent, written.left, wipe=self.options["wipe"]),
            "unfinished": "" if self._task.check_mode else leaving.unfinished(names, terminal().command),
            "outcome": leaving.outcome(names, nodes, cluster.taking_part(without=names)),
        }

    def forget_keys(self, names: list[str]) -> list[dict[str, str]]:
        path = Path(self.options["known_hosts"]).resolve()
        before = read(str(path))
        after = forgotten(before, names)
        if after == before:
            return []
        if not self._task.check_mode:
            with one_writer(path.parent):
                after = forgotten(read(str(path)), names)
                files.replace(str(path), after.encode("utf-8", "surrogateescape"), keep=True)
        shown = short(str(path))
        return [{"before": before, "after": after, "before_header": shown, "after_header": shown}]
