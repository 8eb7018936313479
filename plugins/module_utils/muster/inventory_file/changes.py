"""Add nodes to or remove nodes from the text of an inventory file, or change variables of one node or of all nodes.

Raises CannotEditError if the edit would change anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import edits
from .edits import flow, pair
from .places import groups, places, places_of, said
from .tree import MAPPING, CannotEditError, YamlPart, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .places import Expand, InventoryEntry


@dataclass(frozen=True)
class Language:
    """The parser for the file's text, and the function that expands ranges of nodes. parse raises CannotEditError."""

    parse: Callable[[str], YamlPart]
    expand: Expand

    def said(self, text: str) -> dict[str, Any]:
        return said(self.parse(text), self.expand)

    def value(self, value: Any) -> Any:
        return plain(self.parse(flow(value)))


class RangeError(CannotEditError):
    """The node is part of an entry for several nodes. place: that entry."""

    def __init__(self, place: InventoryEntry) -> None:
        few = ", ".join(place.names[:4]) + (" and more" if len(place.names) > 4 else "")
        super().__init__(f"has the entry {place.key.value}, which is a range of several nodes ({few})")
        self.place = place


def has(text: str, name: str, language: Language) -> bool:
    return bool(places_of(language.parse(text), name, language.expand))


def has_group(text: str, group: str, language: Language) -> bool:
    """Return whether the file defines this group with at least one host."""
    return any(name == group and "hosts" in _keys(value) for name, _, value in groups(language.parse(text)))


def add(text: str, group: str, name: str, variables: Mapping[str, Any], language: Language) -> str:
    """Return the text with the node added to the group. If the node is already present, only its variables are set."""
    if has(text, name, language):
        return assign(text, name, variables, language)
    found = [value for one, _, value in groups(language.parse(text)) if one == group and "hosts" in _keys(value)]
    if not found:
        raise CannotEditError(f"has no hosts in {group}")
    after = edits.with_node(text, found[0], name, variables)
    own = {key: language.value(value) for key, value in variables.items()}
    return _checked(language, after, {**language.said(text), f"{group}/{name}": own})


def remove(text: str, name: str, language: Language) -> str:
    after = text
    while found := places_of(language.parse(after), name, language.expand):
        others = {one for place in places(language.parse(after), language.expand) for one in place.names}
        place = _alone(found[0])
        after = edits.without(after, place.hosts, name, others)
    rest = {key: value for key, value in language.said(text).items() if key.partition("/")[2] != name}
    return _checked(language, after, rest)


def assign(text: str, name: str, variables: Mapping[str, Any], language: Language) -> str:
    """Return the text with the node's variables set.

    A variable that the node already has is changed in place; others are added to the node's first entry.
    """
    wanted = language.said(text)
    for variable, value in variables.items():
        found = places_of(language.parse(text), name, language.expand)
        if not found:
            raise CannotEditError(f"has no {name}")
        group = next((one.group for one in found if variable in wanted[f"{one.group}/{name}"]), found[0].group)
        count = sum(variable in wanted[f"{one.group}/{name}"] for one in found)
        if count > 1:
            raise CannotEditError(f"gives {name} {variable} in {count} places")
        if wanted[f"{group}/{name}"].get(variable) == language.value(value):
            continue
        place = _alone(next(one for one in found if one.group == group))
        text = edits.with_value(text, place.hosts, name, variable, value)
        wanted[f"{group}/{name}"] = {**wanted[f"{group}/{name}"], variable: language.value(value)}
    return _checked(language, text, wanted)


def unassign(text: str, name: str, variables: Iterable[str], language: Language) -> str:
    wanted = language.said(text)
    for variable in variables:
        for group in [one.group for one in places_of(language.parse(text), name, language.expand)]:
            if variable in wanted[f"{group}/{name}"]:
                found = places_of(language.parse(text), name, language.expand)
                place = _alone(next(one for one in found if one.group == group))
                text = edits.without(text, place.value, variable)
                wanted[f"{group}/{name}"] = {
                    key: one for key, one in wanted[f"{group}/{name}"].items() if key != variable
                }
    return _checked(language, text, wanted)


def assign_alone(text: str, variables: Mapping[str, Any], language: Language) -> str:
    """Return the text of a host_vars file with the variables set."""
    for variable, value in variables.items():
        text = _own_variables(text, language, variable, edits.in_mapping(text, _root(text, language), variable, value))
    return text


def unassign_alone(text: str, variables: Iterable[str], language: Language) -> str:
    for variable in variables:
        text = _own_variables(text, language, variable, edits.without(text, _root(text, language), variable))
    return text


def variables_alone(text: str, language: Language) -> frozenset[str]:
    return frozenset(_keys(language.parse(text)))


def _own_variables(before: str, language: Language, variable: str, after: str) -> str:
    pairs = [plain(language.parse(text)) or {} for text in (before, after)]
    for variables in pairs:
        variables.pop(variable, None)
    if pairs[0] != pairs[1]:
        raise CannotEditError("cannot be changed by editing one line")
    return after


def _root(text: str, language: Language) -> YamlPart:
    root = language.parse(text)
    if root.kind != MAPPING or not root.pairs:
        raise CannotEditError("has no variables")
    return root


def _alone(place: InventoryEntry) -> InventoryEntry:
    if place.is_range:
        raise RangeError(place)
    return place


def _keys(value: YamlPart) -> set[str]:
    return {key.value for key, _ in value.pairs} if value.kind == MAPPING else set()


def _checked(language: Language, after: str, wanted: Mapping[str, Any]) -> str:
    """Return the text if only the intended values changed.

    An edit can also change other values through anchors and merges.
    """
    if language.said(after) != wanted:
        raise CannotEditError("cannot be changed for this node alone, because the edit would affect other values")
    return after


def has_for_all(text: str, name: str, language: Language) -> bool:
    """Return whether a group_vars file has the variable."""
    return name in variables_alone(text, language)


def assign_for_all(text: str, name: str, value: Any, language: Language) -> str:
    """Return the text of a group_vars file with the variable set: in place, below its commented-out example, or at the
    end.
    """
    if plain(language.parse(text)):
        return assign_alone(text, {name: value}, language)
    line = pair(name, value, edits.STEP)[0] + "\n"
    shown = re.search(rf"^# ?{re.escape(name)}:.*\n", text, re.MULTILINE)
    before, after = (text[: shown.end()], text[shown.end() :]) if shown else (text, "")
    before += "" if before.endswith("\n") or not before else "\n"
    new = before + line + after
    if plain(language.parse(new)) != {name: language.value(value)}:
        raise CannotEditError("would not be valid with the added line")
    return new


def is_of_a_group(text: str, name: str, language: Language) -> bool:
    """Return whether an inventory file sets the variable in the vars of a group."""
    return bool(_vars(text, name, language))


def assign_to_group(text: str, name: str, value: Any, language: Language) -> str:
    """Return the text of an inventory file with the variable changed in the vars of the group that sets it."""
    found = _vars(text, name, language)
    if len(found) > 1:
        raise CannotEditError(f"sets {name} for several groups")
    new = edits.in_mapping(text, found[0], name, value)
    again = _vars(new, name, language)
    same = len(new.splitlines()) == len(text.splitlines())
    if not same or len(again) != 1 or plain(again[0]).get(name) != language.value(value):
        raise CannotEditError("cannot be changed by editing one line")
    return new


def _vars(text: str, name: str, language: Language) -> list[Any]:
    found = [value.get("vars") for _, _, value in groups(language.parse(text)) if value.kind == MAPPING]
    return [part for part in found if part is not None and part.kind == MAPPING and part.get(name) is not None]
