"""What drifted, and on request its repair.

Compares each node with what the inventory wants (the steps of site.yml in check mode) and with what was last
installed there (installed_record). Says since when and by whom, as far as dpkg's log, apt's history, the journal, the
times of files and sudo's log tell. Where two fit equally or none does, nobody is named. Fails where something
drifted, or where a node could not be looked at. A node that is down stops nothing. Contacts every node by the
connection that the inventory gives it; use it with run_once.

drift: As in drift.json: nodes, differences (node, id, status, what, observed, expected, step, since, by, how and
    source), and what was done about them (repairs).
verdict: What was found, of every node.
msg: The table, or JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.drift import judge, repair, table
from muster.launch.jobs import merge
from muster.verdict.check import collect
from muster.verdict.commands import playbook
from muster.verdict.finding import add_up
from muster_controller.artifacts.json_file import write_json
from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import add_verdict, run_folder, run_id
from muster_controller.drift.drifting import TAGS, Drifting, Look
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

# A repair is no leave for what no step puts back: of what was last installed it changes environments alone.
TAKES_OVER = {"installed_parts": ["environment", "named"]}


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Runs the steps to restore the settings that Muster manages, on drifted nodes only.
        "repair": {"type": "bool", "default": False},
        # Records the current state as the installed state.
        "accept": {"type": "bool", "default": False},
        # Returns the contents of drift.json as msg instead of a table.
        "json": {"type": "bool", "default": False},
    }

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

    # ------------------------------------------------------------ what is said

    def said(self, look: Look, done: list[str], nodes: Sequence[str], folder: Path) -> dict[str, Any]:
        said = collect(judge.findings(look.drifted, look.nodes))
        statuses = [judge.finding(one).status for one in look.drifted]
        unknown = [one for one in said.findings if one.status == "unknown"]
        summary = table.summary(nodes, look.drifted, statuses, unknown)
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
        lines = table.table([one for one, _ in noted], [status for _, status in noted], unknown, no_record)
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

    # ------------------------------------------------------------ what is done

    def repair(self, look: Look, folder: Path) -> tuple[list[str], list[str]]:
        """The nodes on which steps were run, and what came of it."""
        failed = [one.difference for one in look.drifted if judge.finding(one).status == "fail"]
        reached = [node for node, one in look.nodes.items() if not one.down]
        plan = repair.plan(failed, self.busy(reached) if failed else {}, TAGS, reached)
        done = list(plan.left)
        repaired: list[str] = []
        for one in plan.repairs:
            command = f"{playbook('site.yml')} --tags {','.join(one.tags)} --limit {','.join(one.nodes)}"
            if self._task.check_mode:
                done.append(f"{', '.join(one.nodes)}: not repaired by a check; without it, with {typed(command)}")
                continue
            if "pytorch" in one.tags:
                self.condemn(repair.condemned(failed, one.nodes))
            Display().display(f"  Repairing {', '.join(one.nodes)}: {typed(command)}")
            ended = run_steps(
                self, one.tags, ",".join(one.nodes), check=False, log=folder / "repair.log", variables=TAKES_OVER
            )
            repaired += one.nodes
            how = "repaired with" if ended.code == 0 else f"not all was repaired ({ended.why}) with"
            done.append(f"{', '.join(one.nodes)}: {how} {typed(command)}")
        return [node for node in look.nodes if node in repaired], done

    def condemn(self, parts: dict[str, list[str]]) -> None:
        asked = requests(self.task_vars, self._templar, self._loader, list(parts))
        asks = {node: {**asked[node], "parts": names} for node, names in parts.items()}
        for node, answer in ask_all(self, "condemn", asks).items():
            if answer.error:
                Display().warning(f"{node}: its environments cannot be built anew: {answer.error}")

    def busy(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """The launches that run on each node; one that does not say is taken for a node that has some."""
        messages = opened({name: connect(self, name, self.task_vars) for name in nodes})
        heard = ask(messages, list(nodes), "jobs", {**roots(self.cluster), "ended": 0, "lines": 0})
        messages.close()
        found: dict[str, list[str]] = {name: ["what it did not say"] for name in heard.silent}
        for job in merge(heard.said):
            for node, here in job.here.items():
                if here.get("over") is not True:
                    found.setdefault(node, []).append(job.launch_id)
        return found

    def accept(self, nodes: Sequence[str]) -> tuple[list[str], list[str]]:
        """The nodes that have written down what is there now, and what is said of each."""
        if self._task.check_mode:
            return [], ["what is there would be taken as what is installed"]
        about = {"by": operator(), "run": run_id(), "parts": []}
        asked = requests(self.task_vars, self._templar, self._loader, nodes)
        asked = {node: {**one, **about} for node, one in asked.items()}
        answers = ask_all(self, "keep", asked)
        told = [node for node, answer in answers.items() if not answer.error]
        said = {True: "what is there is taken as what is installed", False: "it was written down like this before"}
        return told, [
            f"{node}: it could not be accepted: {answer.error}"
            if answer.error
            else f"{node}: {said[bool(answer.data.get('written'))]}"
            for node, answer in answers.items()
        ]


def joined(first: Look, again: Look, repaired: Sequence[str], nodes: Sequence[str]) -> Look:
    """The later look of the nodes that were looked at again."""
    kept: list[Drifted] = [one for one in first.drifted if one.difference.node not in repaired]
    drifted = sorted([*kept, *again.drifted], key=lambda one: nodes.index(one.difference.node))
    return Look(drifted, {**first.nodes, **again.nodes}, {**first.records, **again.records})
