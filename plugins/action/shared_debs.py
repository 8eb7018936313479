"""Decides which node downloads which files; documented in library/shared_debs.py.

Each step is an ordinary task. Because Ansible finishes a task on all nodes before the next task, no step has to wait
for another node.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from muster.packages.debs import Deb, DebShare, share
from muster.verdict.reading import Limit, read_one
from muster_controller.nodes.activity import WatchedAction
from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Number of other nodes that may have the files from an earlier run. An unreachable node costs ten seconds.
OF_OLD = 2
FILES = Annotated[list[Deb], Limit(most=2000, whole=True)]


class ActionModule(WatchedAction):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.vars: Mapping[str, Any] = task_vars or {}
        self.node: str = self.vars["inventory_hostname"]
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.arguments = dict(self._task.args)
        step = self.arguments.pop("step", "look")
        looks = self.arguments.pop("looks", "")
        if self._task.check_mode or len(self.vars["groups"].get("gpu_nodes", [])) < 2:
            nothing = {"skipped": True, "skip_reason": "check mode, or no other node in the cluster"}
            return {**result, **nothing}
        if step == "look":
            return {**result, **self._ask("look")}
        needed = self._needed(looks)
        mine = share(needed).get(self.node, DebShare())
        done = self._download(mine, needed) if step == "download" else self._get(mine, needed)
        return {**result, **(done or {"skipped": True, "skip_reason": "no files to share for this node"})}

    def _needed(self, looks: str) -> dict[str, list[Deb]]:
        """Return the required packages of each inspected node of the play. A node with an invalid answer downloads its
        packages itself."""
        found = {}
        for name in self.vars["ansible_play_batch"]:
            given = registered(self.vars, name, looks).get("debs", [])
            debs = read_one(FILES, given)
            if debs is None and name == self.node:
                self._display.warning(f"{name}: invalid list of packages; the node downloads them itself")
            if debs:
                found[name] = debs
        return found

    def _download(self, mine: DebShare, needed: Mapping[str, Any]) -> dict[str, Any]:
        if not mine.own:
            return {}
        old = self._of_old(needed)
        # If no other node downloads files for this node, this is its last step.
        return self._ask("download" if mine.others else "get", files=mine.own, peers=old)

    def _get(self, mine: DebShare, needed: Mapping[str, Any]) -> dict[str, Any]:
        if not mine.others:
            return {}
        files = [deb for debs in mine.others.values() for deb in debs]
        return self._ask("get", files=files, peers=[*mine.others, *self._of_old(needed)])

    def _of_old(self, needed: Mapping[str, Any]) -> list[str]:
        return [name for name in self.vars["groups"]["gpu_nodes"] if name not in needed][:OF_OLD]

    def _ask(self, step: str, files: Iterable[Deb] = (), peers: Iterable[str] = ()) -> dict[str, Any]:
        arguments = {**self.arguments, "step": step, "files": [asdict(deb) for deb in files], "peers": list(peers)}
        answer: dict[str, Any] = self._execute_module("shared_debs", arguments, task_vars=self.vars)
        answer.pop("invocation", None)
        return answer
