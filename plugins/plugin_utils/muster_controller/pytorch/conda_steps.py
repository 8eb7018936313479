"""The steps of a conda environment: the controller assembles it, and every node unpacks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail

from muster.pytorch import conda, environments
from muster.pytorch.conda import CondaError
from muster.pytorch.lock import LockError
from muster.pytorch.request import is_environment
from muster_controller.nodes.distribution import Distribution, DistributionNode
from muster_controller.playbook.variables import registered

from .conda import put_together, solve
from .environment_steps import EnvironmentSteps
from .environments import lock_of, read_conda
from .lock_file import BRING_BACK, LockText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

    from muster.pytorch.conda import CondaSection, CondaSpecs

    from .conda import CondaArchive

OPTIONS = ("node", "keep", "user", "lock_timeout")
NOT_YET = "new"  # name of an environment that is not locked yet, in an inspection


class CondaSteps(EnvironmentSteps):
    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        self.name = name
        self.entry: Mapping[str, Any] = arguments["environments"][name]
        self.root = environments.folder_of(arguments["environments_root"], name)
        path = lock_of(arguments, name, task_vars["inventory_dir"])
        super().__init__(action, task_vars, {**arguments, "lock": ""})
        self.lock_file = LockText(path) if path else None

    def work(self, step: str) -> dict[str, Any]:
        """Store errors in the result, so that other environments continue."""
        try:
            asked = read_conda(self.entry, self.vars["inventory_dir"])
            done = {"look": self.look, "fetch": self.fetch, "provide": self.provide}[step](asked)
        except LockError as problem:
            done = {"failed": True, "msg": f"{self.lock_file}: {problem}"}
        except (AnsibleActionFail, CondaError) as problem:
            done = {"failed": True, "msg": str(problem)}
        if done.get("failed"):
            said = str(done.get("msg", "")).removeprefix(f"{self.node}: ")
            done["msg"] = f"{self.node}: environment {self.name}: {said.rstrip('.')}."
        elif "diff" in done:
            done["diff"] |= dict.fromkeys(("before_header", "after_header"), f"environment {self.name}")
        return done

    def locked(self, asked: CondaSpecs) -> tuple[CondaSection, ...]:
        """Return the sections of the lock for this request."""
        return tuple(one for one in self._sections() if one.asked == asked.lines)

    def _sections(self) -> tuple[CondaSection, ...]:
        try:
            return conda.parse(self.lock_file.text()) if self.lock_file else ()
        except LockError as problem:
            raise LockError(f"{problem}. {BRING_BACK}") from None

    def on_node(self, step: str, sections: tuple[CondaSection, ...], **more: Any) -> dict[str, Any]:
        given = {name: self.arguments[name] for name in OPTIONS if name in self.arguments}
        listed = [section.as_dict() for section in sections]
        arguments = {**given, "root": self.root, "step": step, "sections": listed, **more}
        answer: dict[str, Any] = self.action._execute_module("conda_env", arguments, task_vars=self.vars)
        if step != "look":
            answer.pop("diff", None)  # already shown by the inspection
        return answer

    def look(self, asked: CondaSpecs) -> dict[str, Any]:
        found = self.on_node("look", self.locked(asked))
        if self.arguments.get("mode") != "verify" or found.get("failed"):
            return found
        reasons = found["plan"]["reasons"]
        fix = "Set pytorch_mode=manage to build the environment, or remove it from the inventory"
        return {"failed": True, "msg": f"{reasons[0]}. {fix}"} if reasons else {**found, "changed": False}

    def fetch(self, asked: CondaSpecs) -> dict[str, Any]:
        """If this node acts for its group, assemble the environment and distribute it to all nodes that need the
        environment."""
        mine = self._need_of(self.node)
        same = [name for name in self.vars["ansible_play_batch"] if mine and self._need_of(name) == mine]
        if mine is None or same[0] != self.node or self._news(same):
            return {"skipped": True, "skip_reason": "another node provides the environment, or no node needs it"}
        platform, target = mine
        locked = conda.section_for(self._sections(), asked, platform)
        facts = self._of(registered(self.vars, self.node, self.looks))["facts"]
        section = locked or solve(asked, platform, facts)
        if target == NOT_YET:
            target = section.request().name
        with put_together(section, f"{self.root}/envs/{target}") as archive:
            done = self._written(section, asked) if locked is None else {}
            failures = self._brought(archive, same)
            return {
                **done,
                "changed": True,
                "section": section.as_dict(),
                "archive": archive.sha256,
                "target": target,
                "why": failures,
            }

    def _brought(self, archive: CondaArchive, names: list[str]) -> dict[str, str]:
        addresses, port, messages = self._ways(names)
        places = {name: DistributionNode(address, f"{self.root}/store") for name, address in addresses.items()}
        what = f"environment {self.name}"
        task = Distribution(places, port, messages, self._shown, lambda: False, privileged=not self.own, what=what)
        try:
            return task.bring(archive)
        finally:
            messages.close()

    def _written(self, section: CondaSection, asked: CondaSpecs) -> dict[str, Any]:
        if self.lock_file is None:
            return {}
        with self.lock_file.alone():
            text = self.lock_file.text()
            before = conda.parse(text)
            after = conda.render(conda.with_section(before, section, asked))
            self.lock_file.write(after)
        changes = conda.changes(before, section)
        self._say(self.lock_file, changes)
        return {"locked": changes, "diff": self.lock_file.difference(text, after)}

    def provide(self, asked: CondaSpecs) -> dict[str, Any]:
        mine = self._need_of(self.node)
        if mine is None:
            return self.on_node("provide", self.locked(asked)) if self._has_work() else {}
        news = self._news([name for name in self.vars["ansible_play_batch"] if self._need_of(name) == mine])
        if news.get("failed") or "section" not in news:
            raise AnsibleActionFail(str(news.get("msg") or "the environment was not assembled"))
        if self.node in news["why"]:
            raise AnsibleActionFail(f"the environment could not be copied to this node: {news['why'][self.node]}")
        section = conda.section_of(news["section"])
        return self.on_node("provide", (section,), archive=news["archive"], target=news["target"])

    def _need_of(self, name: str) -> tuple[str, str] | None:
        """Return the platform and name of the environment that the node needs, or None if it needs none."""
        look = self._of(registered(self.vars, name, self.looks))
        build = look.get("plan", {}).get("build")
        if not build or look.get("failed"):
            return None
        platform = look["facts"]["platform"]
        # Both values come from the node, and one becomes part of a path.
        usable = platform in conda.PLATFORMS.values() and (build == NOT_YET or is_environment(build))
        return (platform, build) if usable else None

    def _news(self, names: list[str]) -> Mapping[str, Any]:
        """Return the result of the node that acted for these nodes."""
        for register in self.earlier:
            for name in names:
                news = self._of(registered(self.vars, name, register))
                if "section" in news or news.get("failed"):
                    return news
        return {}
