"""Base classes of the project's action plugins. Each plugin adds this folder to the search path first."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from muster.verdict.commands import ping

from . import way_out
from .documentation import documented_options, role_options
from .foreign import foreign
from .node_error import NodeError
from .variables import plain

NO_NODES = "The group gpu_nodes of the inventory is empty: add the nodes as in inventory/lab/hosts.yml."
NOBODY_REACHED = f"No node is reachable. Check the connection: {ping('gpu_nodes')}"

# ansible-playbook imports an action before the first worker that runs it, even without the project's callbacks.
way_out.use()


Options = dict[str, dict[str, Any]]  # in the format of Ansible's argument validation


class OwnAction(ActionBase):
    """An action whose results come from the controller. Results of modules that run on nodes are marked as foreign."""

    def _execute_module(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result: dict[str, Any] = super()._execute_module(*args, **kwargs)
        foreign(result)
        return result


class ControllerAction(OwnAction):
    """An action that does all of its work on the controller.

    OPTIONS: the task options, or None for a public module, whose documentation in library/ declares the options. ROLE:
    a role whose options the action also accepts. In the role's tasks, the variables of the role set these options.
    """

    OPTIONS: ClassVar[Options | None] = None
    ROLE: ClassVar[str] = ""
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        of_role = role_options(self.ROLE) if self.ROLE else {}
        if self.OPTIONS is None:
            declared = documented_options(self._task.action.rpartition(".")[2])
        else:
            declared = {**of_role, **self.OPTIONS}
        if self._task._role and self._task._role.get_name(include_role_fqcn=False) == self.ROLE:
            names = {name: f"{self.ROLE}_{name}" for name in of_role if name in declared}
            given = {
                name: self._templar.template(self.task_vars[own])
                for name, own in names.items()
                if own in self.task_vars
            }
            self._task.args = {**plain(given), **self._task.args}
        _, self.options = self.validate_argument_spec(declared)
        try:
            return {**result, "changed": False, **self.work()}
        except NodeError as problem:
            if not problem.reachable:
                raise AnsibleConnectionFailure(str(problem)) from problem
            raise AnsibleActionFail(f"{self.task_vars['inventory_hostname']}: {problem}") from problem

    @abstractmethod
    def work(self) -> dict[str, Any]:
        """Return the result, based on self.options (with defaults) and self.task_vars."""


class FilledIn(OwnAction):
    """Runs the module of the same name on the node, with additional options from the inventory."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        self.node: str = self.task_vars["inventory_hostname"]
        module, arguments = self._task.action, {**self.from_inventory(), **self._task.args}
        return {**result, **self._execute_module(module_name=module, module_args=arguments, task_vars=self.task_vars)}

    @abstractmethod
    def from_inventory(self) -> dict[str, Any]:
        """Return the additional options. Options that the task sets take precedence."""
