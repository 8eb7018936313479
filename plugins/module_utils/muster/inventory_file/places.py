"""Where the nodes stand in an inventory of YAML: in hosts of groups, and of groups within groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .tree import MAPPING, SCALAR, YamlPart, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Expand = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class InventoryEntry:
    """One entry of one group. names: those that the entry stands for, more than one with a range such as node[1:4]."""

    group: str
    hosts: YamlPart
    key: YamlPart
    value: YamlPart
    names: tuple[str, ...]

    @property
    def is_range(self) -> bool:
        return self.names != (self.key.value,)


def groups(root: YamlPart) -> Iterator[tuple[str, YamlPart, YamlPart]]:
    """Yield each group: its name, its key, and what stands under it."""
    for key, value in root.pairs if root.kind == MAPPING else ():
        if key.kind == SCALAR:
            yield key.value, key, value
            children = value.get("children") if value.kind == MAPPING else None
            yield from groups(children) if children else ()


def places(root: YamlPart, expand: Expand) -> Iterator[InventoryEntry]:
    """Yield each entry of each group, in the order of the file."""
    for group, _, value in groups(root):
        hosts = value.get("hosts") if value.kind == MAPPING else None
        if hosts is not None and hosts.kind == MAPPING:
            for key, one in hosts.pairs:
                yield InventoryEntry(group, hosts, key, one, tuple(expand(key.value)))


def places_of(root: YamlPart, name: str, expand: Expand) -> list[InventoryEntry]:
    return [place for place in places(root, expand) if name in place.names]


def said(root: YamlPart, expand: Expand) -> dict[str, Any]:
    """What the file says, apart: "group/node" with its variables, and "group" with all that is said of no node."""
    found: dict[str, Any] = {}

    def take(groups_of: Any, above: str) -> None:
        for name, group in groups_of.items() if isinstance(groups_of, dict) else ():
            values = group if isinstance(group, dict) else {}
            rest = {key: value for key, value in values.items() if key not in ("hosts", "children")}
            found.setdefault(name, []).append((above, rest))
            for key, value in (values.get("hosts") or {}).items():
                for node in expand(key):
                    found.setdefault(f"{name}/{node}", {}).update(value or {})
            take(values.get("children"), name)

    take(plain(root), "")
    return found
