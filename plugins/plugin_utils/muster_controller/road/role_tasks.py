"""Evaluates the arguments of a role's inspection task for a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.utils.vars import load_extra_vars

from muster_controller.playbook.documentation import documented_options
from muster_controller.playbook.variables import Roles, load_roles, plain, project_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader

    from muster.road.looks import RoleLook


@dataclass
class RoleTasks:
    """The inspection tasks of roles. Each file is read once for all nodes."""

    loader: DataLoader
    templar: Any
    task_vars: Mapping[str, Any]
    known: dict[RoleLook, tuple[dict[str, Any], dict[str, Any], ArgumentSpecValidator]] = field(default_factory=dict)
    roles: dict[str, Roles] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def arguments(self, look: RoleLook, host: str, **more: Any) -> dict[str, Any]:
        """Return the module options in the task, not validated, and without the options that the action plugin adds."""
        raw, _, _ = self._of(look)
        found: dict[str, Any] = plain(self._templar(look, host, more).template(raw))
        return found

    def value(self, look: RoleLook, host: str, name: str, **more: Any) -> Any:
        """Return a variable of the role for this node."""
        templar = self._templar(look, host, more)
        return plain(templar.template(templar.available_variables[name]))

    def judged(self, look: RoleLook, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments with all defaults."""
        result = self._of(look)[2].validate(arguments)
        if result.error_messages:
            raise AnsibleError(f"{look.role}: {'; '.join(result.error_messages)}")
        judged: dict[str, Any] = result.validated_parameters
        return judged

    def _of(self, look: RoleLook) -> tuple[dict[str, Any], dict[str, Any], ArgumentSpecValidator]:
        if look not in self.known:
            role = project_root() / "roles" / look.role
            tasks, own = (
                self.loader.load_from_file(str(role / path), trusted_as_template=True) if (role / path).exists() else {}
                for path in (f"tasks/{look.tasks}.yml", "vars/main.yml")
            )
            more = {**(own or {}), "role_path": str(role), "ansible_search_path": [str(role)]}
            spec = ArgumentSpecValidator(documented_options(look.module))
            self.known[look] = (arguments_in(tasks, look.module), more, spec)
            self.roles[look.role] = load_roles(self.loader, "cluster", look.role, "pytorch", "mtu")
        return self.known[look]

    def _templar(self, look: RoleLook, host: str, more: Mapping[str, Any]) -> Any:
        _, own, _ = self._of(look)
        hostvars = self.task_vars["hostvars"]
        if host not in self.hosts:
            self.hosts[host] = {**hostvars.raw_get(host), "hostvars": hostvars}
        # Extra variables (-e) have precedence, as everywhere in Ansible.
        given = load_extra_vars(self.loader)
        merged = {**self.roles[look.role].defaults, **self.hosts[host], **own, **given, **more}
        return self.templar.copy_with_new_env(available_variables=merged)


def arguments_in(tasks: Sequence[Mapping[str, Any]], module: str) -> dict[str, Any]:
    """Return the arguments of the first task with this module, including module_defaults of enclosing blocks."""
    found = _first(tasks, module, {})
    if found is None:
        raise AnsibleError(f"No task uses {module}.")
    return found


def _first(tasks: Sequence[Mapping[str, Any]], module: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    for task in tasks:
        defaults = {**given, **task.get("module_defaults", {}).get(module, {})}
        if module in task:
            return {**defaults, **(task[module] or {})}
        inner = _first(task.get("block", ()), module, defaults)
        if inner is not None:
            return inner
    return None
