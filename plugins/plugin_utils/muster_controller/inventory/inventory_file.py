"""Change nodes in the inventory files of this run.

sources: the -i arguments of the run (context.CLIARGS["inventory"]). Each function returns InventoryEdits: the changes,
    and instructions for changes that the user must make. With check=True, nothing is written. muster.inventory_file
    changes the text. Files are replaced atomically with mode and owner kept; files that were changed since they were
    read are not written.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.inventory.manager import IGNORED, InventoryManager
from ansible.parsing.dataloader import DataLoader

from muster.inventory_file import by_hand, changes
from muster.inventory_file.changes import RangeError
from muster.inventory_file.places import places_of
from muster.inventory_file.tree import CannotEditError
from muster_controller.playbook.command_line import short
from muster_controller.playbook.one_writer import one_writer
from muster_node.tools import files

from .yaml_parts import LANGUAGE, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Edit = Callable[[str], str]

GROUP = "gpu_nodes"
MOST = 8_000_000  # bytes of an inventory
YAML = (".yml", ".yaml")


@dataclass
class InventoryEdits:
    """diffs: the changes as diffs for Ansible. by_hand: instructions for changes that were not made. left: files that
    are now unused."""

    diffs: list[dict[str, str]] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.diffs)


def add_nodes(
    sources: Sequence[str], nodes: Mapping[str, Mapping[str, Any]], *, group: str = GROUP, check: bool = False
) -> InventoryEdits:
    """Append these nodes to a group, with their variables. For nodes that already exist, only set the variables."""

    def work(inventory: _Inventory) -> None:
        for name, variables in nodes.items():
            known = [file for file in inventory.written if inventory.has(file, name)]
            places = known or [file for file in inventory.written if inventory.has_group(file, group)]
            target = places[0] if places else inventory.first
            fallback = by_hand.to_add(short(str(target)), group, name, variables)
            if target in inventory.written:
                inventory.change(target, _edit(changes.add, group, name, variables), fallback)
            else:
                inventory.outcome.by_hand.append(fallback)

    return _work(sources, work, check=check)


def remove_nodes(sources: Sequence[str], names: Iterable[str], *, check: bool = False) -> InventoryEdits:
    """Remove these nodes from all groups and files. Nodes that are not in the inventory are ignored."""

    def work(inventory: _Inventory) -> None:
        for name in names:
            for file in inventory.written:
                if inventory.has(file, name):
                    fallback = inventory.split(file, name) or by_hand.to_remove(name, inventory.mentions(name, [file]))
                    inventory.change(file, _edit(changes.remove, name), fallback)
            for file in inventory.foreign:
                if inventory.gives(file, name):
                    inventory.outcome.by_hand.append(by_hand.to_remove(name, inventory.mentions(name, [file])))
            inventory.outcome.left += [short(str(path)) for path in inventory.own_files(name)]

    return _work(sources, work, check=check)


def set_variables(
    sources: Sequence[str], nodes: Mapping[str, Mapping[str, Any]], *, check: bool = False
) -> InventoryEdits:
    """Set variables of these nodes. A variable that host_vars sets is changed there, otherwise in the node's entry."""

    def work(inventory: _Inventory) -> None:
        for name, variables in nodes.items():
            own = inventory.own_files(name)
            holding = [file for file in own if set(variables) & inventory.variables(file)]
            listed = [file for file in inventory.written if inventory.listed_alone(file, name)]
            place = inventory.folder / "host_vars" / f"{name}.yml"
            fallback = by_hand.to_assign(short(str(own[0] if own else place)), name, variables)
            filled = [file for file in own if inventory.variables(file)]
            if holding or not listed:
                target, edit = [*holding, *filled, None][0], _edit(changes.assign_alone, variables)
            else:
                target, edit = listed[0], _edit(changes.assign, name, variables)
            if target is None:
                inventory.outcome.by_hand.append(fallback)
            else:
                inventory.change(target, edit, fallback)

    return _work(sources, work, check=check)


def unset_variables(
    sources: Sequence[str], nodes: Mapping[str, Iterable[str]], *, check: bool = False
) -> InventoryEdits:
    """Remove these variables from the nodes, in all places that set them for a single node."""

    def work(inventory: _Inventory) -> None:
        for name, variables in nodes.items():
            gone = list(variables)
            for file in inventory.own_files(name):
                if set(gone) & inventory.variables(file):
                    fallback = by_hand.to_unassign(name, gone, [short(str(file))])
                    inventory.change(file, _edit(changes.unassign_alone, gone), fallback)
            for file in inventory.written:
                if inventory.has(file, name):
                    fallback = by_hand.to_unassign(name, gone, inventory.mentions(name, [file]))
                    inventory.change(file, _edit(changes.unassign, name, gone), fallback)
            for file in inventory.foreign:
                if set(gone) & inventory.given_by(file, name):
                    where = inventory.mentions(name, [file])
                    inventory.outcome.by_hand.append(by_hand.to_unassign(name, gone, where))

    return _work(sources, work, check=check)


def _edit(change: Callable[..., str], *arguments: Any) -> Edit:
    return lambda text: change(text, *arguments, LANGUAGE)


def _work(sources: Sequence[str], work: Callable[[_Inventory], None], *, check: bool) -> InventoryEdits:
    paths = [path for source in sources if "," not in source for path in _files_of(Path(source).absolute())]
    with ExitStack() as locks:
        for folder in sorted({path.parent for path in paths}) if not check else ():
            locks.enter_context(one_writer(folder))
        inventory = _Inventory(paths)
        work(inventory)
        return inventory.finish(check=check)


class _Inventory:
    """The contents of an inventory's files, before and after the changes."""

    def __init__(self, paths: list[Path]) -> None:
        self.files = paths
        self.before: dict[Path, str] = {}
        self.after: dict[Path, str] = {}
        self.outcome = InventoryEdits()
        self.written = [path for path in self.files if self._is_written(path)]
        self.foreign = [path for path in self.files if path not in self.written]
        self.known: dict[Path, InventoryManager] = {}

    @property
    def first(self) -> Path:
        return self.files[0] if self.files else Path("hosts.yml").absolute()

    @property
    def folder(self) -> Path:
        return self.first.parent

    def text(self, path: Path) -> str:
        if path not in self.after:
            content = files.read(str(path), most=MOST, links=True)
            self.before[path] = self.after[path] = content.decode("utf-8")
        return self.after[path]

    def has(self, path: Path, name: str) -> bool:
        return changes.has(self.text(path), name, LANGUAGE)

    def has_group(self, path: Path, group: str) -> bool:
        return changes.has_group(self.text(path), group, LANGUAGE)

    def listed_alone(self, path: Path, name: str) -> bool:
        """Return whether the node has its own entry and is not only part of a range."""
        found = places_of(parse(self.text(path)), name, LANGUAGE.expand)
        return any(not place.is_range for place in found)

    def variables(self, path: Path) -> frozenset[str]:
        try:
            return changes.variables_alone(self.text(path), LANGUAGE)
        except (OSError, UnicodeDecodeError, CannotEditError):
            return frozenset()

    def own_files(self, name: str) -> list[Path]:
        """Return the node's host_vars files beside each source, as Ansible finds them."""
        found = []
        for folder in dict.fromkeys(path.parent for path in self.files):
            place = folder / "host_vars" / name
            found += [path for path in (place, *(place.with_name(name + end) for end in YAML)) if path.is_file()]
            found += sorted(path for path in place.glob("*") if path.suffix in YAML) if place.is_dir() else []
        return found

    def change(self, path: Path, edit: Edit, fallback: str) -> None:
        try:
            self.after[path] = edit(self.text(path))
        except (OSError, UnicodeDecodeError, CannotEditError) as problem:
            self.outcome.by_hand.append(f"{short(str(path))} {_why(problem)}.\n{fallback}")

    def split(self, path: Path, name: str) -> str:
        """Return instructions to split a range that contains the node, or ""."""
        try:
            changes.remove(self.text(path), name, LANGUAGE)
        except RangeError as problem:
            text = self.text(path)
            line = text.count("\n", 0, problem.place.key.start) + 1
            return by_hand.to_split(short(str(path)), line, text, problem.place, name)
        except CannotEditError:
            pass
        return ""

    def mentions(self, name: str, paths: Iterable[Path]) -> list[str]:
        """Return the line numbers on which the name occurs as a word, by file."""
        found = []
        for path in paths:
            try:
                lines = self.text(path).splitlines()
            except (OSError, UnicodeDecodeError):
                lines = []
            word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
            numbers = [str(number) for number, line in enumerate(lines, 1) if word.search(line)]
            found.append(f"{short(str(path))}{' line ' + ', '.join(numbers) if numbers else ''}")
        return found

    def gives(self, path: Path, name: str) -> bool:
        """Return whether an inventory of another type, as read by Ansible, contains this node."""
        return self._read(path).get_host(name) is not None

    def given_by(self, path: Path, name: str) -> set[str]:
        host = self._read(path).get_host(name)
        return set(host.vars) if host else set()

    def finish(self, *, check: bool) -> InventoryEdits:
        for path, after in self.after.items():
            before = self.before[path]
            if after == before:
                continue
            if not check:
                self._write(path, before, after)
            shown = short(str(path))
            self.outcome.diffs.append({"before": before, "after": after, "before_header": shown, "after_header": shown})
        return self.outcome

    def _write(self, path: Path, before: str, after: str) -> None:
        if files.read(str(path), most=MOST, links=True).decode("utf-8") != before:
            raise AnsibleError(f"{short(str(path))} was changed by another process. Nothing was written. Try again.")
        try:
            files.replace(os.path.realpath(path), after.encode(), keep=True)
        except OSError as problem:
            raise AnsibleError(f"{short(str(path))} cannot be written ({problem.strerror}).") from None

    def _is_written(self, path: Path) -> bool:
        """Return whether the file is a handwritten YAML inventory, not the configuration of an inventory plugin."""
        if path.suffix not in YAML or os.access(path, os.X_OK):
            return False
        try:
            return parse(self.text(path)).get("plugin") is None
        except (OSError, UnicodeDecodeError, CannotEditError):
            return False

    def _read(self, path: Path) -> InventoryManager:
        if path not in self.known:
            self.known[path] = InventoryManager(DataLoader(), sources=[str(path)])
        return self.known[path]


def _files_of(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    inner = sorted(path for path in source.iterdir() if not IGNORED.search(os.fsencode(path.name)))
    return [file for path in inner for file in _files_of(path)]


def _why(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"cannot be read ({problem.strerror})"
    return "is not UTF-8 text" if isinstance(problem, UnicodeDecodeError) else str(problem)
