"""Copies a data folder to all nodes.

Compares each file of the folder with the copies on the nodes by sha256. The controller sends files that no node has to
one node. The other nodes receive the files in chains, in which each node forwards the data that it receives. Each file
is verified before it gets its final name, is owned by root and is readable by all users. Complete files are not sent
again, so that a repeated run resumes an interrupted copy. Other files in the target folder are never removed. Digests
are cached on the controller and on the nodes until the kernel reports that a file changed. Contacts all nodes of the
play at once; use it with run_once.

msg: The size and rate of the copy, and the files that were not copied.
nodes: For each node with missing files, the size of these files (bytes) and the nodes that sent them (came).
wrong: For each node, the differences between its copy and the source.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.shared_data import copying
from muster.verdict.words import few, gigabytes, plural
from muster_controller.nodes.connection import connect
from muster_controller.nodes.messages import Messages
from muster_controller.playbook.action import NOBODY_REACHED, ControllerAction, Options
from muster_controller.playbook.variables import load_roles, read_values
from muster_controller.shared_data import data_source
from muster_controller.shared_data.data_copy import PROGRAM, DataCopy
from muster_controller.shared_data.data_source import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.shared_data.data_source import DataListing

VARIABLES = ("cluster_name", "cluster_artifacts_dir", "cluster_address", "firewall_launch_ports")
FOLDER = "data"  # in the artifacts of a cluster: cached digests of folders on the controller
UNREACHED = "not reachable"


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Source folder on the controller, or NODE:/path for a folder on a node.
        "src": {"type": "str", "required": True},
        # Target folder on all nodes.
        "dest": {"type": "str", "required": True},
        # Copies nothing, but reads all files on all nodes and fails if a file differs from the source.
        "verify": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        every = self.task_vars["ansible_play_hosts_all"]
        names = [name for name in self.task_vars["groups"]["gpu_nodes"] if name in every]
        alive = [name for name in names if name in self.task_vars["ansible_play_hosts"]]
        asked, problems = copying.asked(self.options["src"], self.options["dest"], names)
        if asked.node and not problems and asked.node not in alive:
            problems.append(f"{asked.node}, the source node, is not reachable.")
        if problems or not alive:
            raise AnsibleActionFail("\n".join(problems) or NOBODY_REACHED)
        roles = load_roles(self._loader, "cluster", "firewall")
        values = {name: read_values(self.task_vars, self._templar, roles, name, VARIABLES) for name in alive}
        first = values[alive[0]]
        kept = Path(first["cluster_artifacts_dir"], first["cluster_name"], FOLDER)
        messages = Messages({name: connect(self, name, self.task_vars) for name in alive}, PROGRAM)
        addresses = {name: str(values[name]["cluster_address"]) for name in alive}
        port = int(str(first["firewall_launch_ports"]).rpartition("-")[2])
        task = DataCopy(asked, addresses, port, messages, self._shown)
        try:
            listed = self._listed(task, kept)
            return self._result(task, self._done(task, listed), [name for name in names if name not in alive])
        except SourceError as problem:
            raise AnsibleActionFail("\n".join(problem.problems)) from None
        finally:
            messages.close()

    def _listed(self, task: DataCopy, kept: Path) -> DataListing:
        asked = task.asked
        if not asked.node:
            source = Path(asked.source).expanduser().resolve()
            task.asked = asked = copying.CopyRequest("", str(source), asked.target)
            listed = data_source.on_controller(str(source), kept, remember=not self._task.check_mode)
        task.messages.open()
        if asked.node:
            listed = task.listed()
        where = f"{asked.node}:{asked.source}" if asked.node else asked.source
        self._shown(f"{where}: {plural(len(listed.files), 'file')}, {gigabytes(sum(listed.sizes))}")
        return listed

    def _done(self, task: DataCopy, listed: DataListing) -> dict[str, Any]:
        verify = self.options["verify"]
        task.look(listed, again=verify, remember=not self._task.check_mode)
        if verify:
            return self._verified(task, listed)
        lacking = {name: lack for name, lack in task.lacks.items() if lack.anything}
        for name, lack in lacking.items():
            self._shown(f"{name}: {copying.lacks_text(lack, listed.sizes, listed.paths)}")
        size = gigabytes(sum(listed.sizes))
        all_of_it = f"all of {plural(len(listed.files), 'file')}, {size}"
        if against := task.against(listed):
            raise AnsibleActionFail("\n".join(self._lines(against)))
        if not lacking:
            return {"msg": f"{task.target}: {all_of_it}, already present on {few([*task.lacks])}; nothing was copied."}
        bytes_of = {name: sum(listed.sizes[at] for at in lack.files) for name, lack in lacking.items()}
        if self._task.check_mode:
            copied = f"{gigabytes(sum(bytes_of.values()))} would be copied to {task.target} on {few([*lacking])}"
            return {"changed": True, "outcome": copied, "msg": f"Check mode: {copied}."}
        began = time.monotonic()
        task.copy(listed)
        took = time.monotonic() - began
        done = [name for name in lacking if name in task.lacks]
        for name in done:
            sources = few([*task.came.get(name, {})]) or "itself"
            rate = copying.rate(bytes_of[name], took)
            self._shown(f"{name}: {gigabytes(bytes_of[name])} from {sources}, {rate}")
        total = sum(bytes_of[name] for name in done)
        msg = f"{task.target}: {all_of_it}, present on {few([*task.lacks]) or 'no node'}; {gigabytes(total)} copied"
        nodes = {name: {"bytes": bytes_of[name], "came": [*task.came.get(name, {})]} for name in done}
        return {"changed": bool(done), "nodes": nodes, "msg": f"{msg} in {took:.1f} s, {copying.rate(total, took)}."}

    def _verified(self, task: DataCopy, listed: DataListing) -> dict[str, Any]:
        more = task.additional(listed)
        links = [path for path, _ in listed.links]
        lines = {
            name: copying.wrong_lines(name, task.target, lack, listed.paths, links, more.get(name, {}))
            for name, lack in task.lacks.items()
        }
        wrong = [name for name, lack in task.lacks.items() if lack.files or lack.links or lack.blocked]
        blocked = {name: lack.blocked for name, lack in task.lacks.items()}
        for line in (line for name, each in lines.items() if name not in wrong for line in each):
            self._shown(line)
        good = [name for name in task.lacks if name not in wrong]
        found = f"{task.target}: {plural(len(listed.files), 'file')} checked on {plural(len(task.lacks), 'node')}"
        if not wrong:
            return {"msg": f"{found}; all files match the source.", "wrong": {}}
        text = "\n".join(line for name in wrong for line in (*lines[name], *self._lines({name: blocked[name]})))
        again = "To copy these files again, run the same command without data_copy_verify."
        others = f" {few(good)} {'match' if len(good) > 1 else 'matches'} the source." if good else ""
        said = f"{found}; {few(wrong)} {'differ' if len(wrong) > 1 else 'differs'} from the source.{others} {again}"
        return {"failed": True, "msg": f"{text}\n{said}", "wrong": {name: lines[name] for name in wrong}}

    def _result(self, task: DataCopy, said: dict[str, Any], unreached: Sequence[str]) -> dict[str, Any]:
        failures = {**task.failures, **{name: [UNREACHED] for name in unreached}}
        if not failures:
            if not said.get("failed"):
                self._shown(said["msg"])
            return {"outcome": said["msg"].rstrip("."), **said}
        text = "\n".join([*self._lines(failures), said["msg"], "Run the same command again to copy missing files."])
        return {**said, "failed": True, "msg": text}

    @staticmethod
    def _lines(sentences: Mapping[str, Sequence[str]]) -> list[str]:
        return [f"{name}: {each}." for name, found in sentences.items() for each in found]

    def _shown(self, line: str) -> None:
        self._display.display(f"  {line}")
