"""Run the tasks of roles in this process, with the real Ansible and stubbed module results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ansible import context
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.playbook.play import Play
from ansible.plugins.callback import CallbackBase
from ansible.utils.vars import load_options_vars

from acting import World

if TYPE_CHECKING:
    from pathlib import Path

OWN_WORK = {"set_fact", "include_tasks", "include_role", "fail", "validate_argument_spec", "add_host", "meta", "assert"}
SAID = "_given"


@dataclass(frozen=True)
class Answers:
    """Stubbed results by task name or module name, in a mapping of a node's name for one node of several. Other tasks
    only report a change."""

    known: dict[str, Any]

    def handler(self, executor: Any) -> Any:
        """Return a stub for the action plugin of a task."""
        task, check = executor._task, executor._play_context.check_mode or executor._task.check_mode

        def run(**_: Any) -> dict[str, Any]:
            module = task.action.rpartition(".")[2]
            given = {name: told(value) for name, value in task.args.items() if not name.startswith("_ansible")}
            node = task.delegate_to or executor._host.name
            answers = {**self.known, **self.known.get(node, {})}
            known = answers.get(task.name.rpartition(" : ")[2], answers.get(module, {}))
            more = {"environment": task.environment[0]} if task.environment and task.environment[0] else {}
            more |= {"on": node} if node != "node1" else {}
            seen = [module, {**given, **more, **({"check_mode": True} if check else {})}]
            return {"changed": True, "rc": 0, **known, SAID: seen}

        return type("Stub", (), {"run": staticmethod(run), "cleanup": staticmethod(lambda **_: None)})


def told(value: Any) -> Any:
    """Return a registered result with only the values that the test has defined."""
    if not isinstance(value, dict) or SAID not in value:
        return value
    return {name: each for name, each in value.items() if name not in (SAID, "changed", "rc", "failed")}


class Noted(CallbackBase):
    """Callback that collects module arguments and the message of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self._init_callback_methods()
        self.calls: list[Any] = []
        self.failed = ""

    def note(self, result: Any) -> None:
        if SAID in result._result:
            self.calls.append(result._result[SAID])

    def v2_runner_on_ok(self, result: Any) -> None:
        self.note(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        self.note(result)

    def v2_runner_on_failed(self, result: Any, **_: Any) -> None:
        self.note(result)
        said = str(result._result.get("msg", ""))
        self.failed = self.failed if said == "One or more items failed" else said

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self.v2_runner_on_failed(result)


def play(
    folder: Path,
    role: str,
    known: dict[str, Any],
    *,
    tasks: str = "main",
    check: bool = False,
    nodes: int = 1,
    **variables: Any,
) -> tuple[list[Any], str]:
    """Run a task file of a role. Return the executed modules with their arguments in order, and the failure message."""
    names = {"name": role, "tasks_from": tasks}
    source = {"hosts": "all", "gather_facts": False, "tasks": [{"include_role": names, "vars": variables}]}
    noted, answers = Noted(), Answers(known)
    real = TaskExecutor._get_action_handler_with_module_context

    def handler(executor: Any, templar: Any) -> Any:
        if executor._task.action.rpartition(".")[2] in OWN_WORK:
            return real(executor, templar)
        return answers.handler(executor), None

    with (
        patch.object(context, "CLIARGS", ImmutableDict(check=check, forks=1, become_method="sudo")),
        patch.object(load_options_vars, "options_vars", None, create=True),  # Ansible caches them otherwise
        patch.object(TaskExecutor, "_get_action_handler_with_module_context", handler),
    ):
        names = ", ".join(f"node{number}: {{ansible_connection: local}}" for number in range(1, nodes + 1))
        world = World(folder, f"gpu_nodes: {{hosts: {{{names}}}}}")
        whole = Play().load(source, variable_manager=world.manager, loader=world.loader)
        manager = TaskQueueManager(
            world.inventory, world.manager, world.loader, {}, run_additional_callbacks=False, forks=1
        )
        try:
            manager.load_callbacks()
            manager._callback_plugins = [noted]
            manager.run(whole)
        finally:
            manager.cleanup()
    return noted.calls, noted.failed
