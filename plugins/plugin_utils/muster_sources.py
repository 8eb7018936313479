"""Where a node takes its packages from, for plugins that run on the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError

from muster.mirrors import MirrorError, Sources, Wish, resolve
from muster_vars import load_roles, project_root, read_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

TABLE = "roles/package_sources/files/mirrors.yml"
_OPTIONS = ("cluster_mirror", "cluster_mirror_urls", "cluster_offline_dir")


def node_sources(
    task_vars: Mapping[str, Any],
    templar: Templar,
    loader: DataLoader,
    host: str,
    system: str,
    machine: str = "x86_64",
) -> Sources:
    """Return the places that the inventory wishes for this host. system: as ubuntu-24.04. machine: as uname has it."""
    reading = read_node(task_vars, templar, load_roles(loader, "cluster"), host, _OPTIONS)
    for name, error in reading.errors.items():
        raise AnsibleError(f"{host}: {name} {error}.")
    values = reading.values
    wish = Wish(values["cluster_mirror"], values["cluster_mirror_urls"], values["cluster_offline_dir"])
    try:
        return resolve(loader.load_from_file(str(project_root() / TABLE)), wish, system, machine)
    except MirrorError as error:
        raise AnsibleError(f"{host}: {error}.") from error
