"""What the project's action plugins have in common. Each of them adds this folder to the search path before it."""

from __future__ import annotations

import ast
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from .connection import NodeError
from .variables import project_root

if TYPE_CHECKING:
    from collections.abc import Mapping

# What an argument spec takes of an option's documentation, as it is.
_OF_AN_OPTION = ("type", "required", "default", "choices", "elements", "aliases")


def documented_options(module: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec that the DOCUMENTATION of a module in library/ describes."""
    tree = ast.parse((project_root() / "library" / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            return _spec(yaml.safe_load(ast.literal_eval(node.value)).get("options", {}))
    raise LookupError(f"library/{module}.py has no DOCUMENTATION")


def _spec(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            **{key: option[key] for key in _OF_AN_OPTION if key in option},
            **({"options": _spec(option["suboptions"])} if "suboptions" in option else {}),
        }
        for name, option in options.items()
    }


class ControllerAction(ActionBase):
    """Does all of a module's work on the controller: the file in library/ holds its documentation alone."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        _, self.options = self.validate_argument_spec(documented_options(self._task.action.rpartition(".")[2]))
        try:
            return {**result, "changed": False, **self.work()}
        except NodeError as problem:
            if not problem.reachable:
                raise AnsibleConnectionFailure(str(problem)) from problem
            raise AnsibleActionFail(f"{self.task_vars['inventory_hostname']}: {problem}") from problem

    @abstractmethod
    def work(self) -> dict[str, Any]:
        """Return the module's result, by self.options (as documented, with defaults) and self.task_vars."""


class FilledIn(ActionBase):
    """Runs the module of the same name on the node, with options that only the inventory knows."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        self.node: str = self.task_vars["inventory_hostname"]
        module = self._task.action.rpartition(".")[2]
        arguments = {**self.from_inventory(), **self._task.args}
        return {**result, **self._execute_module(module_name=module, module_args=arguments, task_vars=self.task_vars)}

    @abstractmethod
    def from_inventory(self) -> dict[str, Any]:
        """Return the options; what the task gives goes before them."""
