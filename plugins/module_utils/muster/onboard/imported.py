"""Create a new inventory from a list of nodes, and describe the next steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..inventory import addresses
from ..inventory.model import Inventory, InventoryNode
from ..inventory_file.edits import pair
from ..inventory_file.tree import CannotEditError
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUP, GPUS = "gpu_nodes", "cluster_gpus"
STEP = 2
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
# Rules of the inventory that apply to a list of machines.
RULES = (addresses.addresses_are_used_once, addresses.one_address_family)


def name_problems(name: str) -> list[str]:
    if not name:
        return ["The inventory has no name. Set it with -e import_to=NAME, such as rack2, to create inventory/NAME."]
    if not NAME.fullmatch(name):
        return [f"import_to is {name[:80]!r}, which is not a valid folder name. Use letters, digits, - and _."]
    return []


def node_problems(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the problems of the nodes, which are given as {name, variables}."""
    known = tuple(
        InventoryNode(one["name"], {**one["variables"], "cluster_address": _training(one)})
        for one in nodes
        if one["variables"].get("ansible_host")
    )
    inventory = Inventory(nodes=known, options=(), forks=1, ansible_version=())
    return [str(problem) for rule in RULES for problem in rule(inventory)]


def _training(one: Mapping[str, Any]) -> Any:
    return one["variables"].get("cluster_address", one["variables"]["ansible_host"])


def text(nodes: Sequence[Mapping[str, Any]], source: str) -> str:
    """Return the content of hosts.yml. Variables that all nodes have in common are written once. source: one line that
    describes where the nodes come from.

    Raises ValueError for values that cannot be written.
    """
    own = {str(one["name"]): dict(one["variables"]) for one in nodes}
    first = next(iter(own.values()))
    common = {
        name: value
        for name, value in first.items()
        if len(own) > 1 and name != "ansible_host" and all(one.get(name) == value for one in own.values())
    }
    hosts = {name: {key: value for key, value in one.items() if key not in common} for name, one in own.items()}
    hint = "" if any(GPUS in one for one in own.values()) else _hint(bool(common))
    try:
        lines = pair(GROUP, {**({"vars": common} if common else {}), "hosts": hosts}, STEP)
    except CannotEditError as problem:
        raise ValueError(f"An inventory {problem}.") from None
    begun = "\n".join(lines).partition("\n")
    return (
        f"---\n# Imported from {source}. You can edit this file: playbooks/import.yml does not overwrite it.\n"
        f"{begun[0]}\n{hint}{begun[2]}\n"
    )


def _hint(has_vars: bool) -> str:
    """Return a comment about cluster_gpus, because a list of machines does not contain the number of GPUs."""
    why = "number of GPUs per node; if not set, training uses the CPU"
    if has_vars:
        return f"  # Add {GPUS}: 8 under vars: {why}.\n"
    return f"  # vars:\n  #   {GPUS}: 8   # {why}\n"


def report(folder: str, nodes: Sequence[Mapping[str, Any]], trust: str, look: str, *, check: bool) -> str:
    """Return what was written, and the next steps. trust, look: the commands to run."""
    addresses_of = {str(one["name"]): one["variables"]["ansible_host"] for one in nodes}
    wide = max(len(name) for name in addresses_of)
    word = "Would write" if check else "Wrote"
    lines = [f"{word} {folder}/hosts.yml and {folder}/group_vars: {plural(len(nodes), 'node')}"]
    lines += [f"  {name:<{wide}}  {_said(one)}" for name, one in zip(addresses_of, nodes, strict=True)]
    without = [str(one["name"]) for one in nodes if GPUS not in one["variables"]]
    lines.append("Next:")
    lines.append(f"  1. Check {folder}/hosts.yml, and remove hosts that are not nodes of this cluster.")
    if without:
        lines.append(f"     Set {GPUS} for nodes that train on GPUs. Not set for: {few(without)}.")
    lines.append(f"  2. Pin the host keys: {trust}")
    lines.append(f"  3. Inspect the nodes: {look}")
    return "\n".join(lines)


def _said(one: Mapping[str, Any]) -> str:
    values = one["variables"]
    rest = ", ".join(f"{name} {value}" for name, value in values.items() if name != "ansible_host")
    return f"{values['ansible_host']}{'  ' + rest if rest else ''}"
