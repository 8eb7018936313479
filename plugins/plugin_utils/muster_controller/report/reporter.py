"""Collects the events of an ansible-playbook process from its callbacks, and writes run.json and the report at the end.

There is one Reporter per process. The `report` callback forwards events. The first callback that ends writes the
report, because the last line on the screen (callback `road`) contains the path of the report.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.road.changes import collect, planned_changes
from muster.road.steps import STEPS
from muster.verdict import access
from muster.verdict.commands import CONTACT_NO_NODE, Terminal, playbook
from muster.verdict.foreign import quote
from muster_controller.artifacts import record, runs
from muster_controller.artifacts.pruning import prune
from muster_controller.playbook.command_line import short, shown, tags_of
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.terminal import terminal, typed
from muster_controller.playbook.variables import role_about
from muster_node.tools.process import LAUNCH_ID

from . import notify
from .page import PAGE, write_page

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# ssh's error for an unknown or changed host key.
UNTRUSTED = "Host key verification failed"
FIRST_CONTACT = f"the host key is unknown or has changed: run {playbook('playbooks/trust.yml')}"
# These playbooks check nothing that a report could show, or write a report themselves.
WITHOUT_A_PAGE = ("trust", "plan", "export", "validate", "import", "report", "status", "sandbox_up", "sandbox_down")
NOT_RECORDED = (*CONTACT_NO_NODE, "status")  # status is read-only and may run every few seconds
LONGEST_REASON = 4000  # characters
SHORTEST_STEP = 0.5  # seconds; steps of site.yml that --tags skips are shorter
WORKERS_END = 20.0  # seconds; an interrupted supervisor first ends its launch on all nodes
EVERYBODY = "cluster"  # the subject of a task that runs once for all nodes


class Reporter:
    """Call begin first, then play, judged, took and failed for each event, and finally end."""

    def __init__(self) -> None:
        self.run: dict[str, Any] = {}
        self.playbooks: list[str] = []
        self.cluster_folder: Path | None = None
        self.folders: list[Path] = []
        self.failures: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.terminal = Terminal()
        self.clock = 0.0
        self.process = 0
        self.planned = planned_changes()
        self.page: Path | None = None
        self.keep = 0
        self.notify: dict[str, Any] = {}
        self.pruned = ""
        self.ended = False

    def begin(self, playbook: str, options: Mapping[str, Any]) -> None:
        """Register the start of a playbook, the first of this run or a later one. options: Ansible's CLI options."""
        self.ended = False
        self.playbooks.append(playbook)
        if self.run:
            return
        self.clock = time.monotonic()
        self.process = os.getpid()
        self.terminal = terminal(options)
        self.run = {
            "schema": 1,
            "id": runs.begin(),
            "cluster": "",
            "check": bool(options.get("check")),
            "tags": tags_of(options),
            "limit": options.get("subset") or "",
            "began": now(),
            "options": {},
            "nodes": [],
            "failures": [],
        }

    def play(self, name: str, extra_vars: Mapping[str, Any]) -> None:
        self.end_of_step()
        self.steps.append({"name": name, "seconds": 0.0, "began": time.monotonic()})
        self.run["options"] = {key: shown(key, value) for key, value in sorted(extra_vars.items())}

    def judged(self, result: Mapping[str, Any]) -> None:
        """Register the validated inventory: the cluster name and the number of runs to keep. Nodes cannot influence
        these values."""
        if cluster := result.get("cluster"):
            self.cluster_folder = Path(cluster["folder"])
            self.keep = cluster["keep"]
            self.notify = cluster.get("notify", {})
            self.run.update(cluster=cluster["name"], nodes=list(cluster["nodes"]))

    def took(self, result: Mapping[str, Any]) -> None:
        """Register the artifacts folder or the verdict in the result of a successful or failed task."""
        if isinstance(result.get("verdict"), dict):
            for failure in self.failures:
                failure["before_verdict"] = True
        if isinstance(result.get("artifacts"), str) and LAUNCH_ID.match(Path(result["artifacts"]).name):
            folder = Path(result["artifacts"])
            self.folders = [*(other for other in self.folders if other != folder), folder]

    def planned_by(self, host: str, role: str, task: str, result: Mapping[str, Any]) -> None:
        """Register the changes that a role's task would make in a run of the steps in check mode."""
        if role and self.only_steps and self.run["check"]:
            collect(self.planned, host, role, task, result, role_about(role))

    def failed(self, host: str, task: str, result: Mapping[str, Any], *, once: bool, unreachable: bool) -> None:
        if isinstance(result.get("verdict"), dict):
            return  # the verdict has the details
        node = EVERYBODY if once or host == "localhost" else host
        failure = {"node": node, "task": task, "why": reason(result), "unreachable": unreachable}
        self.failures.append({**failure, "before_verdict": False, "host": host})

    def end_of_step(self) -> None:
        if self.steps and "began" in self.steps[-1]:
            self.steps[-1]["seconds"] = round(time.monotonic() - self.steps[-1].pop("began"), 1)

    def interrupted(self) -> None:
        """Report the checks and launches that were made before Ctrl-C ended Ansible."""
        if self.ended or not self.run or os.getpid() != self.process:
            return
        # A worker returns the launch's verdict; Ansible itself waits for its workers when it exits.
        for worker in multiprocessing.active_children():
            worker.join(WORKERS_END)
        folders = [*self.folders, *([self.cluster_folder / self.run["id"]] if self.cluster_folder else [])]
        if any(folder.is_dir() for folder in folders):
            why = "ansible-playbook was interrupted"
            self.failures.append({"node": EVERYBODY, "task": self.steps[-1]["name"], "why": why, "host": EVERYBODY})
            self.end({failure["host"] for failure in self.failures})

    def end(self, failed_hosts: Collection[str]) -> Path | None:
        """Write the report once, and return its path on every call. Failures that a rescue block handled do not
        count."""
        if self.ended or not self.run:
            return self.page
        self.ended = True
        self.end_of_step()
        failures = [
            {name: value for name, value in failure.items() if name != "host"}
            for failure in self.failures
            if failure["host"] in failed_hosts
        ]
        place = {name: number for number, name in enumerate(self.run["nodes"])}
        failures.sort(key=lambda failure: place.get(failure["node"], -1))
        books = tuple(map(short, self.playbooks))
        self.run.update(
            playbook=", ".join(Path(name).name for name in self.playbooks),
            command=replace(self.terminal, books=books).command,
            ended=now(),
            seconds=round(time.monotonic() - self.clock, 1),
            failures=failures,
            steps=[step for step in self.steps if step["seconds"] >= SHORTEST_STEP],
        )
        self.planned["rows"].sort(key=lambda one: place.get(one["node"], -1))
        self.planned["stopped"] = {one["node"]: one["task"] for one in failures}
        if self.only_steps and self.run["check"]:
            self.run["planned"] = self.planned
        for folder in self.own_folders(failures):
            # Attaching to a launch of another run extends that run's report.
            earlier = {} if folder.name == self.run["id"] else runs.read_json(folder / "run.json")
            self.page = write_page(folder, earlier or {**self.run, "id": folder.name})
        if self.page and self.cluster_folder and not self.run["check"]:
            self.pruned = prune(self.cluster_folder, self.keep)
        return self.page

    def tell_pruned(self) -> str:
        """On the first call, return the sentence about pruned runs. On later calls, return ""."""
        said, self.pruned = self.pruned, ""
        return said

    def tell_others(self, status: str, line: str, verdict: Mapping[str, Any] | None) -> str:
        """Send the message about the end of the run, and return a warning, or "". status, line: of the last line."""
        if not (self.cluster_folder and self.notify and line):
            return ""
        return notify.send(self.cluster_folder, self.notify, self.run, (status, line), verdict, str(self.page or ""))

    def record(self, result: str, changed: Sequence[str] | None) -> None:
        """Add the playbook's result to the record. changed: the names of the changed nodes, or None if unknown."""
        if self.cluster_folder and Path(self.playbooks[-1]).stem not in NOT_RECORDED:
            about = {name: self.run[name] for name in ("id", "tags", "limit", "check")}
            book = short(self.playbooks[-1])
            record.add(
                self.cluster_folder, {"time": now(), "playbook": book, **about, "result": result, "changed": changed}
            )

    @property
    def of_a_cluster(self) -> bool:
        """Return whether the run validated an inventory with a playbook that does not print its own result."""
        silent = set(WITHOUT_A_PAGE) - set(CONTACT_NO_NODE)
        return self.cluster_folder is not None and not silent & {Path(name).stem for name in self.playbooks}

    @property
    def only_steps(self) -> bool:
        """Return whether the run consists of steps of site.yml, so that its changes are those of the roles."""
        return {Path(name).stem for name in self.playbooks} <= {"site", *(step.tag for step in STEPS)}

    @property
    def contacts_nodes(self) -> bool:
        return not all(Path(name).stem in CONTACT_NO_NODE for name in self.playbooks)

    def is_alone(self, playbook: str) -> bool:
        """Return whether the run consists of this playbook only."""
        return [Path(name).stem for name in self.playbooks] == [playbook]

    def own_folders(self, failures: Collection[Mapping[str, Any]]) -> list[Path]:
        """Return the folders that get a report, which are those of runs that checked something, launched something, or
        failed.

        The last folder is the one that a task reported last. Its report is the report of the run.
        """
        if self.cluster_folder is None or all(Path(name).stem in WITHOUT_A_PAGE for name in self.playbooks):
            return []
        own = self.cluster_folder / self.run["id"]
        if failures and not any(folder.is_dir() for folder in (own, *self.folders)):
            runs.run_folder(self.cluster_folder)
        folders = self.folders if own in self.folders else [own, *self.folders]
        return [folder for folder in folders if folder.is_dir()]


REPORTER = Reporter()


def reason(result: Mapping[str, Any], *, quoted: bool = False) -> str:
    """Return why a task failed. quoted: whether to shorten an unexplained error to its first line, in quotation
    marks."""
    items = [item for item in result.get("results") or () if isinstance(item, dict) and has_failed(item)]
    parts: list[Mapping[str, Any]] = [*items] or [result]
    said = [text for part in parts for text in (typed(str(part.get("msg") or ""), part), str(part.get("stderr") or ""))]
    why = "\n".join(dict.fromkeys(text.strip() for text in said if text.strip()))
    if UNTRUSTED in why:
        return typed(FIRST_CONTACT)
    what, fix = access.explain(why)
    if what:
        return typed(f"{what}. {fix}")
    why = why.removeprefix("Task failed: ")[:LONGEST_REASON]
    if "can be reached over ssh: " in why:
        return "unreachable: " + one_line(why.strip('"'))
    if not why:
        return "failed"
    return quote(why.splitlines()[0]) if quoted else why


def has_failed(item: Mapping[str, Any]) -> bool:
    """Return whether an item of a loop failed. In ansible-core 2.21, a failed item has no "failed", only an
    exception."""
    return bool(item.get("failed", "exception" in item))


def now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")


__all__ = ["FIRST_CONTACT", "PAGE", "REPORTER", "UNTRUSTED", "Reporter", "reason"]
