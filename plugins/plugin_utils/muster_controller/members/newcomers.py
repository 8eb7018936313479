"""Treats nodes that are given with -e like nodes of the inventory, and reads the members in the inventory."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context

from muster.members.quarantine import OPTION
from muster_controller.playbook.variables import load_roles, read_node
from muster_node.tools import files

from .members import quarantine_said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

GROUP = "gpu_nodes"
MOST = 4_000_000  # bytes of a list of nodes
NOWHERE = "muster-says-nothing-of-this-host"  # a host name without settings in any ssh config
PLACES = ("inventory_dir", "inventory_file")


def sources() -> list[str]:
    """Return each -i argument of the run."""
    return [str(source) for source in context.CLIARGS.get("inventory") or ()]


def counted_in(task_vars: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return task_vars as if the inventory contained these nodes ({name, variables}). This affects only this process,
    because Ansible forks a process for each action."""
    inventory = task_vars["hostvars"]._inventory
    for node in nodes:
        inventory.add_host(node["name"], GROUP)
        for name, value in node["variables"].items():
            inventory.get_host(node["name"]).set_variable(name, value)
    inventory.reconcile_inventory()
    groups = inventory.get_groups_dict()
    names = [node["name"] for node in nodes]
    return {**task_vars, "groups": groups, "ansible_play_hosts_all": names, "ansible_play_hosts": names}


def place(task_vars: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables with the location of the inventory, on which paths depend. Ansible sets them only for nodes
    of the inventory."""
    for name in task_vars["groups"].get(GROUP, []):
        own = task_vars["hostvars"].raw_get(name)
        if own.get("inventory_dir"):
            return {key: str(own[key]) for key in PLACES if own.get(key)}
    first = next((Path(source).absolute() for source in sources() if "," not in source), Path("inventory").absolute())
    return {"inventory_dir": str(first if first.is_dir() else first.parent)}


def members(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader) -> dict[str, dict[str, Any]]:
    """Return {quarantined, reason, address} for each node of gpu_nodes, as currently set in the inventory."""
    roles = load_roles(loader, "cluster")
    found = {}
    for name in task_vars["groups"].get(GROUP, []):
        values = read_node(task_vars, templar, roles, name, (OPTION, "ansible_host")).values
        quarantined, reason = quarantine_said(values.get(OPTION))
        address = str(values.get("ansible_host") or "")
        found[name] = {"quarantined": quarantined, "reason": reason, "address": address}
    return found


def looked_up(places: Iterable[str]) -> dict[str, list[str]]:
    """Resolve host names. IPv4 addresses come first; the list of an unknown name is empty."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(places):
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            answers = []
        addresses = dict.fromkeys(str(answer[4][0]) for answer in answers)
        found[name] = sorted(addresses, key=lambda address: ":" in address)
    return found


def text_of(path: str) -> str | None:
    """Return the text of a user's file with unchanged line endings, or None if the file cannot be read completely."""
    try:
        return files.read(str(Path(path).expanduser()), most=MOST, links=True).decode("utf-8", "replace")
    except (OSError, ValueError, RuntimeError):
        return None
