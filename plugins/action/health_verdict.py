"""Combines and stores the health results of the cluster.

Combines the results of nccl_health (nodes), net_probe (links) and rdma_rails (rails), and compares the values that must
be equal on all nodes. The value of the majority counts as correct, and nodes with other values are named. If there is
no majority, for example between two nodes, all values are shown. Writes health/<node>.json, network.json, rails.json if
there are rails, and the run's verdict.json on the controller. Never fails; refusal contains the causes that block a
launch. Contacts no node; use it with run_once.

msg: The findings, starting with the most severe, and the checks that could not be made.
verdict: The verdict of the run so far.
refusal: One sentence with the fix for each cause that blocks a launch, or an empty string.
metrics: Metrics for node_exporter's textfile collector, by node.
artifacts: Folder on the controller with the results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from muster.health import cluster, metrics, table
from muster.health.cluster import Nodes
from muster.verdict.finding import add_up
from muster_controller.artifacts.runs import add_verdict, run_folder, write_json
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = "not reachable, or an earlier step failed"


class ActionModule(ControllerAction):
    ROLE = "health"
    OPTIONS: ClassVar[Options] = {
        # Registered result of health_plan.
        "plan": {"type": "dict", "required": True},
        # Name of the variable with the registered nccl_health result of each node.
        "looks": {"type": "str", "required": True},
        # Registered result of net_probe.
        "network": {"type": "dict", "required": True},
        # Registered result of rdma_rails.
        "rails": {"type": "dict", "default": {}},
    }

    def work(self) -> dict[str, Any]:
        nodes = self._nodes(self.options, self.task_vars)
        # In check mode the earlier steps have fixed nothing, so faults that they would fix must not block the run.
        health = cluster.judge(nodes, "warn" if self._task.check_mode else self.options["gate"])
        network = nodes.network.get("network", {})
        verdict = add_up(health.findings, skipped=health.skipped, ran=health.ran)
        if verdict["status"] in ("healthy", "degraded"):
            verdict["summary"] = table.summary(health, network, len(nodes.looks))
        folder = run_folder(Path(nodes.plan["folder"]))
        for name, look in nodes.looks.items():
            own = [finding.as_dict() for finding in health.findings if finding.node == name]
            kept = {"schema": 1, "node": name, "facts": look["facts"], "traits": look["traits"], "findings": own}
            kept.update(look["verdict"]["coverage"])
            write_json(folder / "health" / f"{name}.json", kept)
        write_json(folder / "network.json", network)
        if nodes.rails.get("rails"):
            write_json(folder / "rails.json", {"schema": 1, "rails": nodes.rails["rails"]})
        return {
            "msg": table.report(health, network, len(nodes.looks)),
            "verdict": add_verdict(folder, verdict),
            "refusal": health.refusal,
            "metrics": {
                name: metrics.textfile([one for one in health.findings if one.node == name], time.time())
                for name in nodes.looks
            },
            "artifacts": str(folder),
        }

    def _nodes(self, arguments: Mapping[str, Any], task_vars: Mapping[str, Any]) -> Nodes:
        plan = arguments["plan"]
        looks, lost, left_out = {}, {}, []
        for name in plan["requests"]:
            look = registered(task_vars, name, arguments["looks"])
            if "traits" in look:
                looks[name] = look
            elif name not in task_vars["ansible_play_hosts_all"]:
                left_out.append(name)
            else:
                lost[name] = one_line(str(look.get("msg", ""))).rstrip(":. ") or LOST
        return Nodes(plan, looks, lost, left_out, arguments["network"], arguments["rails"])
