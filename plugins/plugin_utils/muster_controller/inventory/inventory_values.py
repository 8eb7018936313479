"""Options that are the same for all nodes, in the inventory of this run: what the cluster has from now on."""

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
GROUPS = ("gpu_nodes", "all")  # in the order in which Ansible prefers what they say


@dataclass
class ValueEdits:
    """diffs: as Ansible shows them. by_hand: what somebody has to write."""

    diffs: list[dict[str, str]] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.diffs)


def keep_values(action: ControllerAction, values: Mapping[str, Any], *, check: bool) -> ValueEdits:
    """Write what the inventory does not say yet for every node. What nodes have of their own is left to people."""
    kept, roles = ValueEdits(), load_roles(action._loader)
    for name, value in values.items():
        said = {
            node: read_node(action.task_vars, action._templar, roles, node, [name]).values.get(name)
            for node in action.task_vars["groups"]["gpu_nodes"]
        }
        other = [node for node, one in said.items() if one != value]
        if not other:
            continue
        line = pair(name, value, 2)[0]
        if len({str(one) for one in said.values()}) > 1:
            kept.by_hand.append(f"Your inventory has {name} for nodes apart. Write for {', '.join(other)}:\n\n{line}\n")
            continue
        why = _write(kept, name, value, check=check)
        if why:
            kept.by_hand.append(f"{why}Write into your inventory, for all nodes:\n\n{line}\n")
    return kept


def _write(kept: ValueEdits, name: str, value: Any, *, check: bool) -> str:
    """Write it where it stands, or into group_vars/all.yml; return why that was not done."""
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
        return f"It was not written: {short(str(path)) if path else 'its files: '} {problem}. "
    return "There is no group_vars/all.yml beside it. "


def _places(sources: list[Path], name: str, value: Any) -> Iterator[tuple[Path, Edit]]:
    """The one file that says it, of those that Ansible reads; else where it is to stand."""
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
