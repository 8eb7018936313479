"""What people write themselves where an inventory is not Muster's to edit: the lines as they stand in its file."""

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
    return _write(f"Write {name} into {file}, as far as these lines are not there", lines)


def to_assign(file: str, name: str, variables: Mapping[str, Any]) -> str:
    """file: host_vars/NAME.yml beside the inventory, which counts whatever kind that is."""
    lines = [line for key, value in variables.items() for line in edits.pair(key, value, STEP)]
    return _write(f"Write into {file}, for {name}", lines)


def to_unassign(name: str, variables: Iterable[str], found: Iterable[str]) -> str:
    where = "; ".join(found) or "your inventory"
    return f"Take {', '.join(variables)} of {name} out of {where}."


def to_remove(name: str, found: Iterable[str]) -> str:
    """found: each file in which the name stands, with the line."""
    return f"Take {name} out of {'; '.join(found) or 'your inventory'}."


def to_split(file: str, line: int, text: str, place: InventoryEntry, name: str) -> str:
    """The entry for many, written for each of the others, with what all of them have."""
    own = text[place.key.end : place.value.end] or ":"
    entries = [f"{' ' * place.key.column}{one}{own}" for one in place.names if one != name]
    return _write(f"In {file} line {line}, write instead of {place.key.value}", entries)


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
