"""What happened in this ansible-playbook, as its callbacks see it; in the end it becomes run.json and the report page.

There is one Reporter in ansible-playbook. The callback report hands on what happens, and whichever callback comes to
the end first has the page written: the last line on the screen (callback road) names it.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.verdict import access
from muster.verdict.commands import CONTACT_NO_NODE, Terminal, playbook
from muster.verdict.foreign import quote
from muster_controller.artifacts import record, runs
from muster_controller.artifacts.pruning import prune
from muster_controller.playbook.command_line import short, shown, tags_of
from muster_controller.playbook.terminal import terminal, typed
from muster_node.tools.process import LAUNCH_ID

from .page import PAGE, write_page

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# What ssh says where the host key is not the one that is known, or none is.
UNTRUSTED = "Host key verification failed"
FIRST_CONTACT = f"its host key is not known here, or is another one than before: run {playbook('playbooks/trust.yml')}"
# They look at nothing that a report could show, or write one themselves.
WITHOUT_A_PAGE = ("trust", "plan", "validate", "import", "report", "status", "sandbox_up", "sandbox_down")
NOT_RECORDED = (*CONTACT_NO_NODE, "status")  # it only looks, perhaps every few seconds
LONGEST_REASON = 4000  # characters
SHORTEST_STEP = 0.5  # seconds; what --tags leaves out of a road is shorter
WORKERS_END = 20.0  # seconds; a supervisor that is interrupted ends its launch everywhere first
EVERYBODY = "cluster"  # whom a task that runs once for all nodes speaks of


class Reporter:
    """begin, and then play, judged, took and failed as things happen, and end."""

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
        self.page: Path | None = None
        self.keep = 0
        self.pruned = ""
        self.ended = False

    def begin(self, playbook: str, options: Mapping[str, Any]) -> None:
        """A playbook begins, the first of this run or the next. options: the command line's, as Ansible has them."""
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
        """The inventory was judged: which cluster this is, and how many of its runs stay. No node has a say in it."""
        if cluster := result.get("cluster"):
            self.cluster_folder = Path(cluster["folder"])
            self.keep = cluster["keep"]
            self.run.update(cluster=cluster["name"], nodes=list(cluster["nodes"]))

    def took(self, result: Mapping[str, Any]) -> None:
        """A task has reported something, well or not: where its artifacts are, or a verdict."""
        if isinstance(result.get("verdict"), dict):
            for failure in self.failures:
                failure["before_verdict"] = True
        if isinstance(result.get("artifacts"), str) and LAUNCH_ID.match(Path(result["artifacts"]).name):
            folder = Path(result["artifacts"])
            self.folders = [*(other for other in self.folders if other != folder), folder]

    def failed(self, host: str, task: str, result: Mapping[str, Any], *, once: bool, unreachable: bool) -> None:
        if isinstance(result.get("verdict"), dict):
            return  # the verdict says it, and more
        node = EVERYBODY if once or host == "localhost" else host
        failure = {"node": node, "task": task, "why": reason(result), "unreachable": unreachable}
        self.failures.append({**failure, "before_verdict": False, "host": host})

    def end_of_step(self) -> None:
        if self.steps and "began" in self.steps[-1]:
            self.steps[-1]["seconds"] = round(time.monotonic() - self.steps[-1].pop("began"), 1)

    def interrupted(self) -> None:
        """Ansible ends early, by Ctrl-C: what was looked at or launched until now is reported all the same."""
        if self.ended or not self.run or os.getpid() != self.process:
            return
        # Ansible itself waits for its workers when it exits; a launch's verdict comes from one of them.
        for worker in multiprocessing.active_children():
            worker.join(WORKERS_END)
        folders = [*self.folders, *([self.cluster_folder / self.run["id"]] if self.cluster_folder else [])]
        if any(folder.is_dir() for folder in folders):
            why = "ansible-playbook was interrupted"
            self.failures.append({"node": EVERYBODY, "task": self.steps[-1]["name"], "why": why, "host": EVERYBODY})
            self.end({failure["host"] for failure in self.failures})

    def end(self, failed_hosts: Collection[str]) -> Path | None:
        """Write the page; whoever asks once more gets the same answer. A failure that a rescue dealt with is none."""
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
        for folder in self.own_folders(failures):
            # Who attaches to a launch of another run adds to that one's page.
            earlier = {} if folder.name == self.run["id"] else runs.read_json(folder / "run.json")
            self.page = write_page(folder, earlier or {**self.run, "id": folder.name})
        if self.page and self.cluster_folder and not self.run["check"]:
            self.pruned = prune(self.cluster_folder, self.keep)
        return self.page

    def tell_pruned(self) -> str:
        """What became of older runs, once: whichever callback asks first says it."""
        said, self.pruned = self.pruned, ""
        return said

    def record(self, result: str, changed: Sequence[str] | None) -> None:
        """Add how the playbook ended to the record. changed: nodes on which something was, or None: it is not known."""
        if self.cluster_folder and Path(self.playbooks[-1]).stem not in NOT_RECORDED:
            about = {name: self.run[name] for name in ("id", "tags", "limit", "check")}
            book = short(self.playbooks[-1])
            record.add(
                self.cluster_folder, {"time": now(), "playbook": book, **about, "result": result, "changed": changed}
            )

    @property
    def of_a_cluster(self) -> bool:
        """Whether an inventory was judged, and by a playbook that does not say itself what came of it."""
        silent = set(WITHOUT_A_PAGE) - set(CONTACT_NO_NODE)
        return self.cluster_folder is not None and not silent & {Path(name).stem for name in self.playbooks}

    @property
    def contacts_nodes(self) -> bool:
        return not all(Path(name).stem in CONTACT_NO_NODE for name in self.playbooks)

    def is_alone(self, playbook: str) -> bool:
        """Whether the run is of this playbook, and of no other one."""
        return [Path(name).stem for name in self.playbooks] == [playbook]

    def own_folders(self, failures: Collection[Mapping[str, Any]]) -> list[Path]:
        """The folders that have a page: of a run that looked at something, launched something, or failed.

        The last one is that of which a task has spoken last: its page is the run's.
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
    """Why a task failed, for people. quoted: the first line of somebody else's words, where they are not explained."""
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
    if not why:
        return "failed"
    return quote(why.splitlines()[0]) if quoted else why


def has_failed(item: Mapping[str, Any]) -> bool:
    """Return whether an item of a loop failed. ansible-core 2.21 has no "failed" in it, only an exception."""
    return bool(item.get("failed", "exception" in item))


def now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")


__all__ = ["FIRST_CONTACT", "PAGE", "REPORTER", "UNTRUSTED", "Reporter", "reason"]
