"""Write cluster-wide options to the inventory of this run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context

from muster.inventory_file import changes
from muster.inventory_file.edits import pair
from muster.inventory_file.tree import CannotEditError
from muster_controller.playbook.command_line import short
from muster_controller.playbook.one_writer import one_writer
from muster_controller.playbook.variables import load_roles, read_node
from muster_node.tools import files

from .yaml_parts import LANGUAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from muster_controller.playbook.action import ControllerAction

    Edit = Callable[[str], str]

MOST = 8_000_000  # bytes of a file
YAML = (".yml", ".yaml")
GROUPS = ("gpu_nodes", "all")  # in Ansible's order of precedence


@dataclass
class ValueEdits:
    """diffs: the changes as diffs for Ansible. by_hand: instructions for changes that the user must make."""

    diffs: list[dict[str, str]] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.diffs)


def keep_values(action: ControllerAction, values: Mapping[str, Any], *, check: bool) -> ValueEdits:
    """Set options to these values for all nodes. If the values differ between nodes, only return instructions."""
    kept, roles = ValueEdits(), load_roles(action._loader)
    for name, value in values.items():
        current = {
            node: read_node(action.task_vars, action._templar, roles, node, [name]).values.get(name)
            for node in action.task_vars["groups"]["gpu_nodes"]
        }
        other = [node for node, one in current.items() if one != value]
        if not other:
            continue
        line = pair(name, value, 2)[0]
        if len({str(one) for one in current.values()}) > 1:
            kept.by_hand.append(f"Your inventory sets {name} per node. Set for {', '.join(other)}:\n\n{line}\n")
            continue
        why = _write(kept, name, value, check=check)
        if why:
            kept.by_hand.append(f"{why}Add to your inventory, for all nodes:\n\n{line}\n")
    return kept


def _write(kept: ValueEdits, name: str, value: Any, *, check: bool) -> str:
    """Write the option where it is already set, or else to group_vars/all.yml. Return why it was not written, if so."""
    sources = [Path(one).absolute() for one in context.CLIARGS.get("inventory") or () if "," not in one]
    path = None
    try:
        for path, edit in _places(sources, name, value):
            with one_writer(path.parent):
                before = _text(path)
                after = edit(before)
                if not check:
                    files.replace(os.path.realpath(path), after.encode(), keep=True)
            shown = short(str(path))
            kept.diffs.append({"before": before, "after": after, "before_header": shown, "after_header": shown})
            return ""
    except (OSError, UnicodeDecodeError, CannotEditError) as problem:
        return f"The option was not written: {short(str(path)) if path else 'inventory files:'} {problem}. "
    return "The inventory has no group_vars/all.yml. "


def _places(sources: list[Path], name: str, value: Any) -> Iterator[tuple[Path, Edit]]:
    """Yield the file that sets the option and the edit to make. If no file sets it, yield the file to add the option
    to."""
    folders = list(dict.fromkeys(one if one.is_dir() else one.parent for one in sources))
    shared = [path for folder in folders for group in GROUPS for path in _of_group(folder / "group_vars" / group)]
    for path in shared:
        if changes.has_for_all(_text(path), name, LANGUAGE):
            yield path, lambda text: changes.assign_for_all(text, name, value, LANGUAGE)
    inventories = [one for one in sources if one.is_file()]
    inventories += [path for folder in sources if folder.is_dir() for path in sorted(folder.iterdir())]
    for path in inventories:
        if path.suffix in YAML and path.is_file() and changes.is_of_a_group(_text(path), name, LANGUAGE):
            yield path, lambda text: changes.assign_to_group(text, name, value, LANGUAGE)
    for path in shared:
        if path.stem == "all":
            yield path, lambda text: changes.assign_for_all(text, name, value, LANGUAGE)


def _of_group(place: Path) -> list[Path]:
    found = [path for path in (place, *(place.with_name(place.name + end) for end in YAML)) if path.is_file()]
    return found + (sorted(path for path in place.glob("*") if path.suffix in YAML) if place.is_dir() else [])


def _text(path: Path) -> str:
    return files.read(str(path), most=MOST, links=True).decode("utf-8")
