"""The cluster's variables of any node, for plugins that run on the controller.

Ansible's hostvars hold what the inventory says of a node, but not the defaults of roles.
Here both are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError

from muster.options import Option, options_of, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar


@dataclass(frozen=True)
class NodeReading:
    """The values that could be read of one node, and for each of the others what is wrong with it."""

    values: dict[str, Any]
    errors: dict[str, str]


def project_root() -> Path:
    """Return the folder that holds ansible.cfg, roles and plugins."""
    return Path(__file__).resolve().parents[2]


def cluster_options(loader: DataLoader) -> dict[str, Option]:
    """Return the options of roles/cluster."""
    specs = project_root() / "roles/cluster/meta/argument_specs.yml"
    return options_of(loader.load_from_file(str(specs)))


def node_variables(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, Any]:
    """Return every cluster_* variable of the host, defaults applied, templated, and of its declared type."""
    reading = read_node(task_vars, templar, loader, host)
    for name, error in reading.errors.items():
        raise AnsibleError(f"{host}: {name} {error}.")
    return reading.values


def read_node(
    task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str, also: Iterable[str] = ()
) -> NodeReading:
    """Read every cluster_* variable of the host, and of the names in `also` those that the inventory sets.

    Variables of a play or of a task are not seen: they belong to no node.
    """
    options = cluster_options(loader)
    defaults = loader.load_from_file(str(project_root() / "roles/cluster/defaults/main.yml"), trusted_as_template=True)
    hostvars = task_vars["hostvars"]
    merged = {**defaults, **hostvars.raw_get(host), "hostvars": hostvars}
    node_templar = templar.copy_with_new_env(available_variables=merged)
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name in [*options, *(name for name in also if name in merged)]:
        try:
            value = _plain(node_templar.template(merged[name]))
            values[name] = read(options[name], value) if name in options else value
        except AnsibleError as error:
            errors[name] = f"cannot be worked out: {' '.join(str(error).split())}"
        except ValueError as error:
            errors[name] = str(error)
    return NodeReading(values, errors)


def _plain(value: Any) -> Any:
    """Return lists and dicts as Python's own: Ansible hands out lazy ones, which cannot leave the plugin."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
