"""Checks whether a new node is healthy.

Evaluates the result of nccl_health on the node and of net_probe on its links. A clock offset, which only causes a
warning before a launch, counts as a failure here. Fails if the result would block a launch on the node.

findings: The findings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from muster.health import cluster, table
from muster.health.cluster import Nodes
from muster.verdict.finding import add_up
from muster_controller.artifacts.runs import run_folder, write_json
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = "not reachable, or an earlier step failed"
# Warnings before a launch that are failures for a new node.
STRICT = ("net.clock.offset",)


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Result of health_plan.
        "plan": {"type": "dict", "required": True},
        # Name of the variable with the registered nccl_health results.
        "looks": {"type": "str", "required": True},
        # Result of net_probe. Empty if there is no other node.
        "network": {"type": "dict", "default": {}},
    }

    def work(self) -> dict[str, Any]:
        node = self.task_vars["inventory_hostname"]
        plan = {**self.options["plan"], "participants": [node], "quarantined": []}
        plan["sources"] = {name: own for name, own in plan["sources"].items() if name == node}
        look = registered(self.task_vars, node, self.options["looks"])
        seen = "traits" in look
        lost = {} if seen else {node: one_line(str(look.get("msg", ""))).rstrip(":. ") or LOST}
        network = about(self.options["network"], node)
        health = cluster.judge(Nodes(plan, {node: look} if seen else {}, lost, [], network), "fail")
        verdict = add_up(health.findings, skipped=health.skipped, ran=health.ran)
        if seen:
            folder = run_folder(Path(plan["folder"]))
            kept = {"schema": 1, "node": node, "facts": look["facts"], "traits": look["traits"]}
            kept.update(findings=verdict["findings"], **look["verdict"]["coverage"])
            write_json(folder / "health" / f"{node}.json", kept)
        result: dict[str, Any] = {"msg": table.report(health, {}, 1), "findings": verdict["findings"]}
        if health.refusal:
            result.update(failed=True, msg=health.refusal)
        return result


def about(network: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the probe's findings about links of this node."""
    findings = [
        {**one, "status": "fail" if one["id"] in STRICT and one["status"] == "warn" else one["status"]}
        for one in network.get("findings", [])
        if node in (one["node"], one.get("peer"))
    ]
    return {**network, "findings": findings}
