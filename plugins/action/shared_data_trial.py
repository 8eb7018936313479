"""Tests shared folders from all nodes at once.

In each folder, every node writes a file as the training user, waits for the files of all other nodes to appear, and
reads one of them. The test shows whether all nodes see the same folder, how soon a node sees files of other nodes,
which user owns the files, and the total write and read rate of all nodes. The files have random names and are removed.
Contacts all nodes of the play at once; use it with run_once.

msg: The results as a table, and the verdict as a sentence.
shared_data: The results, as in shared_data.json of the run.
verdict: The combined verdict of the findings.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.shared_data import trial as domain
from muster.verdict.check import collect
from muster.verdict.finding import add_up, as_lines
from muster_controller.artifacts.runs import add_verdict, run_folder, write_json
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.action import NOBODY_REACHED, ControllerAction, Options
from muster_controller.playbook.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

PROGRAM = NodeProgram("shared_files")
SLOWEST = 5.0  # MB/s of all nodes together; a slower node counts as not responding
BESIDES = 20.0  # seconds of a message in addition to the transfer
LONGEST = 900.0


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Folders to test.
        "paths": {"type": "list", "elements": "str", "required": True},
        # MiB to write and read per node.
        "megabytes": {"type": "int", "default": 256},
    }

    def work(self) -> dict[str, Any]:
        alive = self.task_vars["ansible_play_hosts"]
        names = [
            name for name in self.task_vars["groups"]["gpu_nodes"] if name in self.task_vars["ansible_play_hosts_all"]
        ]
        nodes = [name for name in names if name in alive]
        if not nodes:
            raise AnsibleActionFail(NOBODY_REACHED)
        cluster = node_variables(self.task_vars, self._templar, self._loader, nodes[0])
        if self._task.check_mode:
            return {"msg": f"{', '.join(self.options['paths']) or 'No folder'}: not tested in check mode."}
        self.user = cluster["cluster_user"]
        silent = {name: "not reachable" for name in names if name not in nodes}
        trials = [self.tried(path, nodes, silent) for path in self.options["paths"]]
        return self.said(trials, Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"])

    def tried(self, path: str, nodes: list[str], silent: Mapping[str, str]) -> domain.FolderTrial:
        megabytes = self.options["megabytes"]
        # A new name, so that no node has cached that the file does not exist.
        token = secrets.token_hex(8)
        names = {name: f".muster-{token}-{place}" for place, name in enumerate(nodes)}
        trial = domain.FolderTrial(path, names, megabytes, silent=dict(silent))
        seconds = min(LONGEST, BESIDES + megabytes * len(nodes) / SLOWEST)
        common = {"user": self.user, "folder": path, "seconds": seconds, "word": token}
        try:
            own = {name: {**common, "name": names[name], "megabytes": megabytes} for name in nodes}
            trial.wrote = self.ask("write", own, trial)
            there = {name: names[name] for name in trial.writers}
            looks = {
                name: {**common, "names": [one for other, one in there.items() if other != name], "wait": domain.WAIT}
                for name in trial.wrote
                if set(there) - {name}
            }
            trial.saw = self.ask("see", looks, trial)
            # Each node reads the file of the previous node, which is not in its own page cache.
            writers = [name for name in there if not domain.said(trial.saw.get(name, {"error": "alone"}))]
            reads = {name: {**common, "name": names[writers[place - 1]]} for place, name in enumerate(writers)}
            trial.read = self.ask("read", reads, trial) if len(writers) > 1 else {}
        finally:
            self.ask(
                "remove", {name: {**common, "name": names[name]} for name in nodes if name not in trial.silent}, trial
            )
        return trial

    def ask(self, verb: str, requests: Mapping[str, Json], trial: domain.FolderTrial) -> dict[str, Json]:
        """Send a request to all nodes at once. A node that does not respond is excluded from the following steps."""
        timeout = max((request["seconds"] for request in requests.values()), default=0.0) + BESIDES
        said = ask_nodes(self, PROGRAM, verb, requests, timeout)
        for name, one in said.items():
            if one.error:
                trial.silent.setdefault(name, one.error)
        return {name: one.data for name, one in said.items() if not one.error}

    def said(self, trials: list[domain.FolderTrial], artifacts: Path) -> dict[str, Any]:
        said = collect(one for trial in trials for one in domain.judge(trial))
        ran = [check.id for check in domain.CHECKS] if trials else []
        verdict = add_up(said.findings, "", said.skipped, ran)
        verdict["summary"] = domain.summary(trials, verdict["status"])
        folders = [{"path": trial.path, "megabytes": trial.megabytes, "nodes": domain.rates(trial)} for trial in trials]
        kept = {"schema": 1, "folders": folders}
        folder = run_folder(artifacts)
        write_json(folder / "shared_data.json", kept)
        lines = [line for trial in trials for line in domain.table(trial)]
        return {
            "msg": "\n".join([*lines, *(f"{line}." for line in as_lines(said.findings)), verdict["summary"]]),
            "shared_data": kept,
            "verdict": add_verdict(folder, verdict),
            "artifacts": str(folder),
            "failed": bool(trials) and verdict["status"] in ("failed", "unknown"),
        }
