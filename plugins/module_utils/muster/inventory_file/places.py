"""Find the entries of nodes in a YAML inventory: hosts of groups and of their children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .tree import MAPPING, SCALAR, YamlPart, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Expand = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class InventoryEntry:
    """An entry in the hosts of a group. names: the nodes of the entry; a range such as node[1:4] has several."""

    group: str
    hosts: YamlPart
    key: YamlPart
    value: YamlPart
    names: tuple[str, ...]

    @property
    def is_range(self) -> bool:
        return self.names != (self.key.value,)


def groups(root: YamlPart) -> Iterator[tuple[str, YamlPart, YamlPart]]:
    """Yield the name, key and value of each group."""
    for key, value in root.pairs if root.kind == MAPPING else ():
        if key.kind == SCALAR:
            yield key.value, key, value
            children = value.get("children") if value.kind == MAPPING else None
            yield from groups(children) if children else ()


def places(root: YamlPart, expand: Expand) -> Iterator[InventoryEntry]:
    """Yield the host entries of all groups, in file order."""
    for group, _, value in groups(root):
        hosts = value.get("hosts") if value.kind == MAPPING else None
        if hosts is not None and hosts.kind == MAPPING:
            for key, one in hosts.pairs:
                yield InventoryEntry(group, hosts, key, one, tuple(expand(key.value)))


def places_of(root: YamlPart, name: str, expand: Expand) -> list[InventoryEntry]:
    return [place for place in places(root, expand) if name in place.names]


def said(root: YamlPart, expand: Expand) -> dict[str, Any]:
    """Return the contents of the file: node variables under "group/node", and all other values of a group under
    "group".
    """
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
