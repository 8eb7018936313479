"""The variables of any node, for plugins that run on the controller.

Ansible's hostvars hold what the inventory says of a node, but not the defaults of roles.
Here both are put together.
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
    """The values that could be read of one node, and for each of the others what is wrong with it."""

    values: dict[str, Any]
    errors: dict[str, str]


@dataclass(frozen=True)
class Roles:
    """The options and the defaults of some roles, read once for all nodes."""

    options: dict[str, Option]
    defaults: dict[str, Any]


def project_root() -> Path:
    """Return the folder that holds ansible.cfg, roles and plugins."""
    return Path(__file__).resolve().parents[4]


def controller_file(name: str) -> str | None:
    """Return what is in a file of the controller that an option names; None where it cannot be read."""
    try:
        return (project_root() / Path(name).expanduser()).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):
        return None


def load_roles(loader: DataLoader, *names: str) -> Roles:
    """Return the options and defaults of these roles, or of every role."""
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
    """What a role declares, which is no template: so it is read without Ansible's notes on every value."""
    return options_of(yaml_load(specs.read_text(encoding="utf-8")))


def node_variables(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, Any]:
    """Return every cluster_* variable of the host, defaults applied, templated, and of its declared type."""
    roles = load_roles(loader, "cluster")
    return read_values(task_vars, templar, roles, host, roles.options)


def value_of_nodes(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, name: str) -> dict[str, Any]:
    """Return one cluster_* variable of every node. Reading all of them for each of many nodes takes minutes."""
    roles = load_roles(loader, "cluster")
    return {host: read_values(task_vars, templar, roles, host, [name])[name] for host in staying(task_vars, templar)}


def staying(task_vars: Mapping[str, Any], templar: Templar) -> list[str]:
    """The nodes, without those that leave the cluster in this run (cluster_leaving, which playbooks/retire.yml sets):
    the inventory that this run has read may still have them."""
    leaving = templar.template(task_vars.get("cluster_leaving", []))
    return [name for name in task_vars["groups"].get("gpu_nodes", []) if name not in leaving]


def registered(task_vars: Mapping[str, Any], host: str, name: str) -> Mapping[str, Any]:
    """Return what an earlier task registered under this name on the host; nothing where it did not run there.

    A task that spoke for all nodes has the host's own under `nodes`; a host that is not among them was asked alone.
    """
    known = task_vars["hostvars"].raw_get(host)
    result: Mapping[str, Any] = known.get(name, {})
    if "nodes" in result:
        result = result["nodes"].get(host) or known.get(f"{name}_alone", {})
    return result


def read_values(
    task_vars: Mapping[str, Any], templar: Templar, roles: Roles, host: str, names: Iterable[str]
) -> dict[str, Any]:
    """Return what read_node reads. Raises AnsibleError for a value that is wrong."""
    reading = read_node(task_vars, templar, roles, host, names)
    for name, error in reading.errors.items():
        raise AnsibleError(f"{host}: {name} {error}.")
    return reading.values


def read_node(
    task_vars: Mapping[str, Any], templar: Templar, roles: Roles, host: str, names: Iterable[str]
) -> NodeReading:
    """Read these variables of the host, where the inventory sets them or a role has a default.

    Variables of a play or of a task are not seen: they belong to no node.
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
        except Exception as error:  # a template can fail in any way, and each is an answer
            errors[name] = f"cannot be worked out: {' '.join(str(error).split())}"
    return NodeReading(values, errors)


def plain(value: Any) -> Any:
    """Return lists and dicts as Python's own: Ansible hands out lazy ones, which cannot leave the plugin."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value
