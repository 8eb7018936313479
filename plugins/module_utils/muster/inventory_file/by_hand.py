"""Instructions for inventory changes that Muster cannot make itself: the lines to add to or remove from a file."""

from __future__ import annotations

import ast
import shlex
from typing import TYPE_CHECKING, Any

from . import edits
from .edits import STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .places import InventoryEntry


def to_add(file: str, group: str, name: str, variables: Mapping[str, Any]) -> str:
    if file.endswith((".yml", ".yaml", ".json")):
        lines = [f"{group}:", f"{' ' * STEP}hosts:"]
        lines += [" " * 2 * STEP + line for line in edits.entry(name, variables, STEP, on_one_line=False)]
    else:
        lines = [f"[{group}]", " ".join([name, *(f"{key}={_ini(value)}" for key, value in variables.items())])]
    return _write(f"Add {name} to {file}. Add these lines where they are missing", lines)


def to_assign(file: str, name: str, variables: Mapping[str, Any]) -> str:
    """Return the lines to add to a host_vars file.

    file: host_vars/NAME.yml, which Ansible reads for every type of inventory.
    """
    lines = [line for key, value in variables.items() for line in edits.pair(key, value, STEP)]
    return _write(f"Add to {file}, for {name}", lines)


def to_unassign(name: str, variables: Iterable[str], found: Iterable[str]) -> str:
    where = "; ".join(found) or "your inventory"
    return f"Remove {', '.join(variables)} of {name} from {where}."


def to_remove(name: str, found: Iterable[str]) -> str:
    """Return instructions for removing a node. found: the files that contain the node's name, with line numbers."""
    return f"Remove {name} from {'; '.join(found) or 'your inventory'}."


def to_split(file: str, line: int, text: str, place: InventoryEntry, name: str) -> str:
    """Return the lines that replace a range entry: one entry with the same variables for each node of the range except
    this one.
    """
    own = text[place.key.end : place.value.end] or ":"
    entries = [f"{' ' * place.key.column}{one}{own}" for one in place.names if one != name]
    return _write(f"In {file} line {line}, replace {place.key.value} with", entries)


def _write(what: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{what}:", "", *lines, ""])


def _ini(value: Any) -> str:
    if isinstance(value, str):
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return shlex.quote(value)
    text = repr(value)
    return shlex.quote(text) if '"' in text or "\\" in text or "'" not in text else f'"{text}"'
