"""Reads variables of any node, for plugins on the controller.

Ansible's hostvars contain the values of a node in the inventory, but not the defaults of roles. This module combines
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.yaml import yaml_load

from muster.inventory.options import Option, options_of, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar


@dataclass(frozen=True)
class NodeReading:
    """values: the valid values of a node. errors: for each invalid value, the problem."""

    values: dict[str, Any]
    errors: dict[str, str]


@dataclass(frozen=True)
class Roles:
    """The options and defaults of roles, read once for all nodes."""

    options: dict[str, Option]
    defaults: dict[str, Any]


def project_root() -> Path:
    """Return the folder with ansible.cfg, roles and plugins."""
    return Path(__file__).resolve().parents[4]


def controller_file(name: str) -> str | None:
    """Return the content of a controller file named by an option, or None if it cannot be read."""
    try:
        return (project_root() / Path(name).expanduser()).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):
        return None


def load_roles(loader: DataLoader, *names: str) -> Roles:
    """Return the options and defaults of these roles, or of all roles."""
    roles = Roles({}, {})
    for specs in sorted(project_root().glob("roles/*/meta/argument_specs.yml")):
        role = specs.parents[1]
        if names and role.name not in names:
            continue
        roles.options.update(_declared(specs))
        defaults = role / "defaults/main.yml"
        if defaults.exists():
            roles.defaults.update(loader.load_from_file(str(defaults), trusted_as_template=True) or {})
    return roles


@cache
def _declared(specs: Path) -> dict[str, Option]:
    """Return the options that a role declares. They contain no templates and are read without Ansible's tags."""
    return options_of(yaml_load(specs.read_text(encoding="utf-8")))


@cache
def role_about(role: str) -> dict[str, str]:
    """Return the purpose of a role under "", and how its changes are undone (see roles/wipe/files/undo.yml)."""
    roles = project_root() / "roles"
    undo: dict[str, str] = yaml_load((roles / "wipe/files/undo.yml").read_text(encoding="utf-8"))
    specs = yaml_load((roles / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    return {"": str(next(iter(specs["argument_specs"].values()))["short_description"]), **undo}


def node_variables(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, Any]:
    """Return every cluster_* variable of the host in its declared type, with defaults and templates applied."""
    roles = load_roles(loader, "cluster")
    return read_values(task_vars, templar, roles, host, roles.options)


def value_of_nodes(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, name: str) -> dict[str, Any]:
    """Return one cluster_* variable of every node, because reading all variables of many nodes would take minutes."""
    roles = load_roles(loader, "cluster")
    return {host: read_values(task_vars, templar, roles, host, [name])[name] for host in staying(task_vars, templar)}


def may_write(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, hosts: Iterable[str]) -> bool:
    """Return whether a role may change any of these hosts. With cluster_mode verify, only roles with a mode of their
    own may."""
    roles = load_roles(loader)
    modes = [name for name, one in roles.options.items() if name.endswith("_mode") and "manage" in one.choices]
    del modes[modes.index("cluster_mode")]
    return any("manage" in read_values(task_vars, templar, roles, host, modes).values() for host in hosts)


def staying(task_vars: Mapping[str, Any], templar: Templar) -> list[str]:
    """Return the nodes of the inventory, except nodes that leave the cluster in this run (cluster_leaving, set by
    playbooks/retire.yml). The inventory that this run has read can still contain these nodes."""
    leaving = templar.template(task_vars.get("cluster_leaving", []))
    return [name for name in task_vars["groups"].get("gpu_nodes", []) if name not in leaving]


def registered(task_vars: Mapping[str, Any], host: str, name: str) -> Mapping[str, Any]:
    """Return the result that an earlier task registered for the host, or {} if the task did not run there.

    The result of a task for all nodes contains the host's part under `nodes`. If the host is missing there, a separate
    task inspected it.
    """
    known = task_vars["hostvars"].raw_get(host)
    result: Mapping[str, Any] = known.get(name, {})
    if isinstance(nodes := result.get("nodes"), dict):
        result = nodes.get(host) or known.get(f"{name}_alone", {})
    return result if isinstance(result, dict) else {}


def read_values(
    task_vars: Mapping[str, Any], templar: Templar, roles: Roles, host: str, names: Iterable[str]
) -> dict[str, Any]:
    """Return the values of read_node. Raises AnsibleError if a value is invalid."""
    reading = read_node(task_vars, templar, roles, host, names)
    for name, error in reading.errors.items():
        raise AnsibleError(f"{host}: {name} {error}.")
    return reading.values


def read_node(
    task_vars: Mapping[str, Any], templar: Templar, roles: Roles, host: str, names: Iterable[str]
) -> NodeReading:
    """Read these variables of the host from the inventory or the roles' defaults.

    Variables of a play or task are ignored, because they do not belong to a node.
    """
    hostvars = task_vars["hostvars"]
    merged = {**roles.defaults, **hostvars.raw_get(host), "hostvars": hostvars}
    node_templar = templar.copy_with_new_env(available_variables=merged)
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if name not in merged:
            continue
        try:
            value = plain(node_templar.template(merged[name]))
            values[name] = read(roles.options[name], value) if name in roles.options else value
        except ValueError as error:
            errors[name] = str(error)
        except Exception as error:  # a template can raise any exception
            errors[name] = f"cannot be evaluated: {' '.join(str(error).split())}"
    return NodeReading(values, errors)


def plain(value: Any) -> Any:
    """Return plain lists and dicts, because the plugin must not return Ansible's lazy containers."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value
