"""The lock of the PyTorch environments, and which node downloads; documented in library/pytorch_env.py.

Every use is an ordinary task, and Ansible ends one task on all nodes before it begins the next. So nobody waits here:
what a step needs to know of other nodes, it reads from what their earlier steps registered.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from muster.pytorch.choice import Ask
from muster.pytorch.downloads import Need, downloader, holders
from muster.pytorch.lock import LockError, Section, same_place, section_of
from muster_controller.lock_file import REVIEWED, LockFile, reviewed
from muster_controller.pytorch_look import places, sections
from muster_controller.variables import load_roles, read_node, registered

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_A_NODE = ("cluster_torch_version", "cluster_gpus", "pytorch_variant", "pytorch_packages")
MOST_LINES = 12


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.vars: Mapping[str, Any] = task_vars or {}
        self.node: str = self.vars["inventory_hostname"]
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.arguments = dict(self._task.args)
        step = self.arguments.pop("step", "look")
        self.looks = self.arguments.pop("looks", "")
        self.earlier = self.arguments.pop("fetched", [])
        path = self.arguments.pop("lock", "")
        self.lock = LockFile(path) if path else None
        try:
            result.update({"look": self._look, "fetch": self._fetch, "provide": self._provide}[step]())
        except LockError as problem:
            result.update(failed=True, msg=f"{self.node}: {path}: {problem}")
        return result

    def _node(self, step: str, **more: Any) -> dict[str, Any]:
        here = places(self.vars, self._templar, self._loader, self.node)
        arguments = {**here, **self.arguments, "step": step, **more}
        answer: dict[str, Any] = self._execute_module("pytorch_env", arguments, task_vars=self.vars)
        if step != "look":
            answer.pop("diff", None)  # the look has shown it
        return answer

    def _look(self) -> dict[str, Any]:
        return self._node("look", **sections(self.arguments, self.lock))

    def _fetch(self) -> dict[str, Any]:
        """Get the wheels here, if it is this node's turn, and write them down."""
        needs = self._needs()
        mine = needs[self.node]
        if self._fetched(mine.key, needs) or downloader(mine.key, needs) != self.node:
            return {"skipped": True, "skip_reason": "another node gets the wheels, or none are needed"}
        known = [mine.section] if mine.section else []
        peers = holders(self.node, mine.key, needs, self.vars["groups"]["gpu_nodes"]) if known else []
        fetched = self._node("fetch", locked=known, peers=self._askable(peers))
        if self.lock is not None and "section" in fetched:
            fetched.update(self._written_down(self.lock, section_of(fetched["section"])))
        return fetched

    def _written_down(self, lock: LockFile, section: Section) -> dict[str, Any]:
        """Have what a node has got in the lock, unless it is there; an environment that is there stays."""
        there = lock.read()
        if section in there:
            return {}
        if any(same_place(section, one) and section.asked == one.asked for one in there):
            raise LockError(f"the node answered with another environment for {section.title} than is there")
        done = lock.take(section, self._asks())
        self._say(done["locked"])
        whence = f"from {REVIEWED}, reviewed" if section in reviewed() else "resolved today, and not reviewed"
        self._display.display(f"  {lock}: {section.title}: {whence}")
        return done

    def _provide(self) -> dict[str, Any]:
        needs = self._needs()
        mine = needs[self.node]
        if not mine.build:
            return self._node("provide", locked=[mine.section] if mine.section else [])
        fetched = self._fetched(mine.key, needs)
        if fetched is None:
            raise AnsibleActionFail(
                f"{self.node}: nobody downloaded the wheels, and it was not tried here. {self._failures(mine.key)}"
            )
        name, news = fetched
        nodes = [node for node in self.vars["groups"]["gpu_nodes"] if node in news["holders"]]
        keep = name == self.node and name in nodes
        peers = [node for node in nodes if node != self.node]
        result = self._node("provide", locked=[news["section"]], peers=self._askable(peers), keep_wheels=keep)
        if name == self.node and "wheels" in result:
            result["wheels"].update(news["wheels"])
        return result

    def _needs(self) -> dict[str, Need]:
        """What the look found that each node needs, in the order of the play."""
        found = {name: self._need(name) for name in self.vars["ansible_play_batch"]}
        return {name: need for name, need in found.items() if need is not None}

    def _need(self, name: str) -> Need | None:
        look = registered(self.vars, name, self.looks)
        return Need(**look["needs"]) if "needs" in look and not look.get("failed") else None

    def _fetched(self, key: str, needs: Mapping[str, Need]) -> tuple[str, Mapping[str, Any]] | None:
        """The node that has got these wheels in this run, and what it reported."""
        for name in (name for name, need in needs.items() if need.key == key):
            for register in self.earlier:
                news = registered(self.vars, name, register)
                if "section" in news:
                    return name, news
        return None

    def _failures(self, key: str) -> str:
        """Why each node that tried to get these wheels did not. Ansible has left it out of the play."""
        why = []
        for name in self.vars["ansible_play_hosts_all"]:
            need = self._need(name)
            for register in self.earlier if need and need.key == key else ():
                news = registered(self.vars, name, register)
                if news.get("failed") or news.get("unreachable"):
                    why.append(f"{name}: {str(news.get('msg', '')).removeprefix(name + ': ')}")
        return " ".join(why)

    def _askable(self, names: list[str]) -> list[str]:
        """The nodes to ask for wheels: none where they lie in a folder of the node itself."""
        return [] if self.arguments.get("offline_dir") else names

    def _asks(self) -> list[Ask]:
        """What the inventory asks of every node."""
        roles = load_roles(self._loader, "cluster", "pytorch")
        asks = []
        for name in self.vars["groups"]["gpu_nodes"]:
            reading = read_node(self.vars, self._templar, roles, name, OF_A_NODE)
            for variable, error in reading.errors.items():
                raise AnsibleActionFail(f"{name}: {variable} {error}.")
            values = reading.values
            asks.append(
                Ask(
                    torch_version=values["cluster_torch_version"],
                    variant=values["pytorch_variant"],
                    gpus=values["cluster_gpus"],
                    packages=tuple(values["pytorch_packages"]),
                )
            )
        return list(dict.fromkeys(asks))

    def _say(self, changes: list[str]) -> None:
        more = len(changes) - MOST_LINES
        lines = [*changes[:MOST_LINES], *([f"and {more} more"] if more > 0 else [])]
        for line in lines:
            self._display.display(f"  {self.lock}: {line}")
