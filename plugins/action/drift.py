"""Reports drift, and repairs it on request.

Compares each node with the inventory (by running the steps of site.yml in check mode) and with the record of the last
installation (installed_record). Reports the time and the user of each difference if dpkg's log, apt's history, the
journal, file times or sudo's log contain them. A user is named only if the logs point to exactly one. Fails if
something drifted, or if a node could not be checked. Unreachable nodes do not affect other nodes. Contacts every node
with the connection settings of the inventory; use it with run_once.

drift: As in drift.json: nodes, differences (node, id, status, what, observed, expected, step, since, by, how and
    source), and the repairs that were made (repairs).
verdict: The findings of all nodes.
msg: The table, or JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.drift import judge, repair, table
from muster.launch.jobs import merge
from muster.verdict.check import collect
from muster.verdict.commands import playbook
from muster.verdict.finding import add_up
from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import add_verdict, run_folder, run_id, write_json
from muster_controller.drift.drifting import TAGS, Drifting, DriftReport
from muster_controller.drift.installed import ask_all, requests
from muster_controller.drift.steps_run import run_steps
from muster_controller.launch.elsewhere import ask, opened, roots
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction, Options
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.drift.judge import Drifted

# A repair accepts no difference that no step restores: of the installed record it updates only environments.
TAKES_OVER = {"installed_parts": ["environment", "named"]}


class ActionModule(ControllerAction):
    ROLE = "drift"
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        members = self.task_vars["groups"].get("gpu_nodes", [])
        nodes = [name for name in members if name in self.task_vars["ansible_play_hosts_all"]]
        if not nodes:
            raise AnsibleActionFail(NO_NODES)
        self.cluster = node_variables(self.task_vars, self._templar, self._loader, nodes[0])
        folder = run_folder(Path(self.cluster["cluster_artifacts_dir"], self.cluster["cluster_name"]))
        drifting = Drifting(self, folder)
        look = drifting.look(nodes)
        done: list[str] = []
        changed = False
        if self.options["repair"]:
            repaired, done = self.repair(look, folder)
            if repaired:
                changed = True
                again = drifting.look(repaired)
                look = joined(look, again, repaired, nodes)
        if self.options["accept"]:
            accepted, said = self.accept(nodes)
            done += said
            look = look.accepted(accepted)
        return {**self.said(look, done, nodes, folder), "changed": changed}

    # ------------------------------------------------------------ messages

    def said(self, look: DriftReport, done: list[str], nodes: Sequence[str], folder: Path) -> dict[str, Any]:
        said = collect(judge.findings(look.drifted, look.nodes))
        statuses = [judge.finding(one).status for one in look.drifted]
        differences = [one.difference.check.id for one in look.drifted]
        others = [one for one in said.findings if one.status in ("warn", "unknown") and one.id not in differences]
        summary = table.summary(nodes, look.drifted, statuses, others)
        verdict = add_up(said.findings, summary, said.skipped)
        no_record = {name: one.no_record for name, one in look.nodes.items() if one.no_record and not one.down}
        kept = {
            "schema": 1,
            "nodes": {
                name: {
                    "reached": not one.down,
                    "installed": {key: look.records.get(name, {}).get(key) for key in ("at", "by", "run")},
                }
                for name, one in look.nodes.items()
            },
            "differences": [judge.as_dict(one, status) for one, status in zip(look.drifted, statuses, strict=True)],
            "repairs": done,
        }
        write_json(folder / "drift.json", kept)
        shown = [*zip(look.drifted, statuses, strict=True)]
        noted = [(one, status) for one, status in shown if status != "pass"]
        lines = table.table([one for one, _ in noted], [status for _, status in noted], others, no_record)
        lines += [f"     {line}" for line in done]
        lines += [f"     {line}" for line in table.advice(look.drifted, statuses)]
        text = json.dumps(kept, indent=2) if self.options["json"] else "\n".join(lines or ["ok   nothing differs"])
        return {
            "msg": text,
            "drift": kept,
            "verdict": add_verdict(folder, verdict),
            "artifacts": str(folder),
            "failed": verdict["status"] in ("failed", "unknown"),
        }

    # ------------------------------------------------------------ repair

    def repair(self, look: DriftReport, folder: Path) -> tuple[list[str], list[str]]:
        """Repair the nodes. Return the nodes on which steps were run, and the result of each repair."""
        failed = [one.difference for one in look.drifted if judge.finding(one).status == "fail"]
        reached = [node for node, one in look.nodes.items() if not one.down]
        plan = repair.plan(failed, self.busy(reached) if failed else {}, TAGS, reached)
        done = list(plan.left)
        repaired: list[str] = []
        for one in plan.repairs:
            command = f"{playbook('site.yml')} --tags {','.join(one.tags)} --limit {','.join(one.nodes)}"
            if self._task.check_mode:
                done.append(f"{', '.join(one.nodes)}: not repaired in check mode; to repair, run {typed(command)}")
                continue
            if "pytorch" in one.tags:
                self.condemn(repair.condemned(failed, one.nodes))
            Display().display(f"  Repairing {', '.join(one.nodes)}: {typed(command)}")
            ended = run_steps(
                self, one.tags, ",".join(one.nodes), check=False, log=folder / "repair.log", variables=TAKES_OVER
            )
            repaired += one.nodes
            how = "repaired with" if ended.code == 0 else f"partly repaired ({ended.why}) with"
            done.append(f"{', '.join(one.nodes)}: {how} {typed(command)}")
        return [node for node in look.nodes if node in repaired], done

    def condemn(self, parts: dict[str, list[str]]) -> None:
        asked = requests(self.task_vars, self._templar, self._loader, list(parts))
        asks = {node: {**asked[node], "parts": names} for node, names in parts.items()}
        for node, answer in ask_all(self, "condemn", asks).items():
            if answer.error:
                Display().warning(f"{node}: the environments cannot be rebuilt: {answer.error}")

    def busy(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """Return the launches that are running on each node. A node that does not respond counts as busy."""
        messages = opened({name: connect(self, name, self.task_vars) for name in nodes})
        heard = ask(messages, list(nodes), "jobs", {**roots(self.cluster), "ended": 0, "lines": 0})
        messages.close()
        found: dict[str, list[str]] = {name: ["launches that could not be listed"] for name in heard.silent}
        for job in merge(heard.said):
            for node, here in job.here.items():
                if here.get("over") is not True:
                    found.setdefault(node, []).append(job.launch_id)
        return found

    def accept(self, nodes: Sequence[str]) -> tuple[list[str], list[str]]:
        """Record the current state. Return the nodes that succeeded, and a line of output for each node."""
        if self._task.check_mode:
            return [], ["the current state would be recorded as installed"]
        about = {"by": operator(), "run": run_id(), "parts": []}
        asked = requests(self.task_vars, self._templar, self._loader, nodes)
        asked = {node: {**one, **about} for node, one in asked.items()}
        answers = ask_all(self, "keep", asked)
        told = [node for node, answer in answers.items() if not answer.error]
        said = {True: "the current state was recorded as installed", False: "the current state is already recorded"}
        return told, [
            f"{node}: the current state could not be recorded: {answer.error}"
            if answer.error
            else f"{node}: {said[bool(answer.data.get('written'))]}"
            for node, answer in answers.items()
        ]


def joined(first: DriftReport, again: DriftReport, repaired: Sequence[str], nodes: Sequence[str]) -> DriftReport:
    """Return the first report, updated with the results of the nodes that were checked again."""
    kept: list[Drifted] = [one for one in first.drifted if one.difference.node not in repaired]
    drifted = sorted([*kept, *again.drifted], key=lambda one: nodes.index(one.difference.node))
    return DriftReport(drifted, {**first.nodes, **again.nodes}, {**first.records, **again.records})
