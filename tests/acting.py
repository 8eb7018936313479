"""Run an action plugin of the project in this process like a task of a play, but without ansible-playbook. Variables,
templates and local connections are real, so node programs run on this machine.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugins
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from muster_controller.nodes.program import NodeProgram
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

plugins.action_loader.add_directory(str(ROOT / "plugins/action"))


class World:
    """An inventory in a folder, and the variables of a play."""

    def __init__(self, folder: Path, hosts: str, **variables: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.yml").write_text(hosts)
        self.folder = folder
        self.loader = DataLoader()
        self.loader.set_basedir(str(ROOT))
        self.inventory = InventoryManager(self.loader, sources=[str(folder)])
        self.manager = VariableManager(self.loader, self.inventory)
        names = [host.name for host in self.inventory.get_hosts()]
        self.vars: dict[str, Any] = {
            "hostvars": HostVars(self.inventory, self.manager, self.loader),
            "groups": self.inventory.get_groups_dict(),
            "inventory_hostname": names[0],
            **dict.fromkeys(("ansible_play_hosts", "ansible_play_hosts_all", "ansible_play_batch"), names),
            **variables,
        }

    @property
    def templar(self) -> Templar:
        return Templar(loader=self.loader, variables=self.vars)

    def registered(self, node: str, name: str, value: Any) -> None:
        """Set a fact of a node, as `register` does."""
        self.manager.set_nonpersistent_facts(node, {name: value})

    def action(self, module: str, *, check: bool = False, diff: bool = False, **options: Any) -> Any:
        task = Task()
        task.action, task.args, task.check_mode, task.diff = module, options, check, diff
        play_context = PlayContext()
        play_context.check_mode, play_context.diff = check, diff
        connection = plugins.connection_loader.get("local", play_context, new_stdin=None)
        return plugins.action_loader.get(
            module,
            task=task,
            connection=connection,
            play_context=play_context,
            loader=self.loader,
            templar=self.templar,
            shared_loader_obj=plugins,
        )

    def run(self, module: str, *, check: bool = False, diff: bool = False, **options: Any) -> dict[str, Any]:
        """Run a task and return its result. Exceptions of the task are raised."""
        result: dict[str, Any] = self.action(module, check=check, diff=diff, **options).run(None, self.vars)
        return result

    def fails(self, module: str, *, check: bool = False, **options: Any) -> str:
        """Run a task that must fail, and return its message."""
        try:
            result = self.run(module, check=check, **options)
        except AnsibleError as problem:
            return str(problem)
        assert result.get("failed"), f"{module} did not fail"
        return str(result["msg"])


class Programs:
    """Stub for node programs. answers: by verb, the answer of every node, or a function of node name and request.
    Exceptions in answers are raised. asked: nodes, verbs and requests in order.
    """

    def __init__(self, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = {"identity": {"launch_user": False, "uid": 0}, **answers}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

        def call(_program: NodeProgram, node: Any, verb: str, payload: dict[str, Any], *, privileged: bool) -> Any:
            self.asked.append((node.name, verb, {**payload, **({} if privileged else {"as_root": False})}))
            answer = self.answers[verb]
            found = answer(node.name, payload) if callable(answer) else answer
            if isinstance(found, Exception):
                raise found
            return copy.deepcopy(found)

        patch.setattr(NodeProgram, "call", call)

    def verbs(self) -> list[str]:
        return [verb for _, verb, _ in self.asked]

    def of(self, verb: str) -> dict[str, dict[str, Any]]:
        """Return {node: last request with this verb}."""
        last = {name: asked for name, each, asked in self.asked if each == verb}
        return {name: last[name] for name in sorted(last)}


class Modules:
    """Stub for modules that an action plugin runs on a node. answer: results by module. ran: module names and options
    in order."""

    def __init__(self, patch: pytest.MonkeyPatch, **answer: Any) -> None:
        self.answer = answer
        self.ran: list[tuple[str, dict[str, Any]]] = []

        def execute(_action: object, module_name: str, module_args: dict[str, Any], **_more: Any) -> Any:
            self.ran.append((module_name, module_args))
            return copy.deepcopy(self.answer)

        patch.setattr(ActionBase, "_execute_module", execute)
