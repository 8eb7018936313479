"""The file of a new inventory, from nodes that were named in a list; and what is to be done with it next."""

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
# What may be wrong with a list of machines, apart from all that an inventory says of them besides.
RULES = (addresses.addresses_are_used_once, addresses.one_address_family)


def name_problems(name: str) -> list[str]:
    if not name:
        return ["It has no name. Name the inventory with -e import_to=NAME, such as rack2: it becomes inventory/NAME."]
    if not NAME.fullmatch(name):
        return [f"import_to is {name[:80]!r}, which is no name of a folder. Use letters, digits, - and _."]
    return []


def node_problems(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """nodes: {name, variables} of each, as its inventory is to have it."""
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
    """hosts.yml; what all nodes have is written once. source: what they were read from, on one line.

    Raises ValueError where something cannot be written down.
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
        f"---\n# Imported from {source}. It is yours from now on: playbooks/import.yml writes over no file.\n"
        f"{begun[0]}\n{hint}{begun[2]}\n"
    )


def _hint(has_vars: bool) -> str:
    """The one thing that no list of machines says, where it belongs."""
    why = "GPUs to train on in each node; without it they train on their CPUs"
    if has_vars:
        return f"  # {GPUS}: 8 belongs under vars: {why}.\n"
    return f"  # vars:\n  #   {GPUS}: 8   # {why}\n"


def report(folder: str, nodes: Sequence[Mapping[str, Any]], trust: str, look: str, *, check: bool) -> str:
    """What was written, and what comes next, for people. trust, look: commands."""
    addresses_of = {str(one["name"]): one["variables"]["ansible_host"] for one in nodes}
    wide = max(len(name) for name in addresses_of)
    word = "Would write" if check else "Wrote"
    lines = [f"{word} {folder}/hosts.yml and {folder}/group_vars: {plural(len(nodes), 'node')}"]
    lines += [f"  {name:<{wide}}  {_said(one)}" for name, one in zip(addresses_of, nodes, strict=True)]
    without = [str(one["name"]) for one in nodes if GPUS not in one["variables"]]
    lines.append("Next:")
    lines.append(f"  1. Look at {folder}/hosts.yml, and take out what is no node of this cluster.")
    if without:
        lines.append(f"     Add {GPUS} where GPUs are to be trained on; there is none for {few(without)}.")
    lines.append(f"  2. Pin the host keys: {trust}")
    lines.append(f"  3. Look at the nodes: {look}")
    return "\n".join(lines)


def _said(one: Mapping[str, Any]) -> str:
    values = one["variables"]
    rest = ", ".join(f"{name} {value}" for name, value in values.items() if name != "ansible_host")
    return f"{values['ansible_host']}{'  ' + rest if rest else ''}"
