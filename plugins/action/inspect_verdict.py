"""Evaluates the inspections of all nodes and shows them.

Compares the result of node_inspect on each node with the inventory and with the other nodes. Writes inspect.json into
the cluster's artifacts folder, readable only by its owner. Never fails; refusals contains the nodes that must be
excluded from later steps. Contacts no node; use it with run_once.

msg: The table, the findings, and the checks that could not be made.
refusals: For each excluded node, sentences with the reasons and fixes.
findings: All findings.
status: The combined status of the findings. healthy, degraded, unknown or failed.
reminder: A note that is repeated at the end of the run, about GPUs that are not set in the inventory.
artifacts: Folder on the controller with inspect.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from muster.gpu_stack.rdma import describe
from muster.inspect import cluster, table
from muster.inspect import node as inspect_node
from muster.inspect.facts import InspectedNode
from muster.inspect.floors import TABLE, floors_of
from muster.inspect.gpus import reminder
from muster.verdict.finding import add_up, findings_in, with_fix
from muster_controller.artifacts.runs import run_id, write_json
from muster_controller.gpu_stack.rdma import part_of
from muster_controller.gpu_stack.rdma import table as rdma_table
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import project_root, registered
from muster_controller.report.reporter import REPORTER

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Registered result of inspect_plan.
        "plan": {"type": "dict", "required": True},
        # Name of the variable with the registered node_inspect result of each node.
        "looks": {"type": "str", "required": True},
        # Findings of inspect_look about services that the firewall would block.
        "cut_off": {"type": "list", "elements": "dict", "default": []},
    }

    def work(self) -> dict[str, Any]:
        plan = self.options["plan"]
        nodes = [self._node(self.task_vars, plan, name, self.options["looks"]) for name in plan["requests"]]
        # Nodes excluded by --limit were not inspected and are not reported.
        nodes = [node for node in nodes if node.facts is not None or node.why]
        findings = [finding for node in nodes for finding in inspect_node.judge(node)]
        findings += [*cluster.judge(nodes), *findings_in({"findings": self.options["cut_off"]})]
        skipped = [entry for node in nodes for entry in inspect_node.skips(node)]
        request = next(iter(plan["requests"].values()))
        folder = Path(request["cluster_artifacts_dir"]) / request["cluster_name"]
        verdict = add_up(findings, skipped=skipped)
        facts = {node.name: node.facts for node in nodes}
        write_json(folder / "inspect.json", {**verdict, "run": run_id(), "nodes": facts})
        refusals: dict[str, list[str]] = {}
        for finding in findings:
            if finding.status == "fail":
                refusals.setdefault(finding.node, []).append(f"{with_fix(finding)}.")
        return {
            "msg": table.report(nodes, findings, skipped, self._rdma(nodes)),
            "refusals": {name: "\n".join(lines) for name, lines in refusals.items()},
            "artifacts": str(folder),
            "findings": verdict["findings"],
            "status": verdict["status"],
            "reminder": reminder(nodes),
            "outcome": table.outcome(nodes, findings) if REPORTER.is_alone("inspect") else "",
        }

    def _rdma(self, nodes: list[InspectedNode]) -> dict[str, str]:
        """Return a line for each node with an RDMA adapter: its state, and what the step gpu_stack changes."""
        names = rdma_table(self._loader)
        lines = {}
        for node in nodes:
            if node.facts is not None:
                has_gpus = bool(node.request["cluster_gpus"]) or bool(node.facts["gpus"]["devices"])
                part = part_of(names, node.name, node.request, node.facts, has_gpus=has_gpus)
                lines[node.name] = describe(part, node.facts["rdma"])
        return lines

    def _node(self, task_vars: Mapping[str, Any], plan: Mapping[str, Any], name: str, looks: str) -> InspectedNode:
        look = registered(task_vars, name, looks)
        facts = look.get("facts")
        why = "" if facts else one_line(str(look.get("msg", ""))).removeprefix("Task failed: ").rstrip(":. ")
        peers = {peer: request["cluster_address"] for peer, request in plan["requests"].items() if peer != name}
        floors = floors_of(self._loader.load_from_file(str(project_root() / TABLE)))
        return InspectedNode(name, plan["requests"][name], facts, why, plan["platforms"], peers, floors)
