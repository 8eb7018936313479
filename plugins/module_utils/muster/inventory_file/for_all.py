"""The text of a file with an option changed that is the same for all nodes: of a group, or in group_vars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import changes, edits
from .places import groups
from .tree import MAPPING, CannotEditError, plain
from .written import pair

if TYPE_CHECKING:
    from .changes import Language


def has(text: str, name: str, language: Language) -> bool:
    """Whether a file of group_vars says it."""
    return name in changes.variables_alone(text, language)


def assign(text: str, name: str, value: Any, language: Language) -> str:
    """In a file of group_vars: where it stands, else below the comment that shows it, else at the end."""
    if plain(language.parse(text)):
        return changes.assign_alone(text, {name: value}, language)
    line = pair(name, value, edits.STEP)[0] + "\n"
    shown = re.search(rf"^# ?{re.escape(name)}:.*\n", text, re.MULTILINE)
    before, after = (text[: shown.end()], text[shown.end() :]) if shown else (text, "")
    before += "" if before.endswith("\n") or not before else "\n"
    new = before + line + after
    if plain(language.parse(new)) != {name: language.value(value)}:
        raise CannotEditError("is written in a way in which no line can be added")
    return new


def is_of_a_group(text: str, name: str, language: Language) -> bool:
    """Whether an inventory says it in the vars of a group."""
    return bool(_vars(text, name, language))


def assign_to_group(text: str, name: str, value: Any, language: Language) -> str:
    """In an inventory, in the vars of the one group that has it."""
    found = _vars(text, name, language)
    if len(found) > 1:
        raise CannotEditError(f"has {name} for several groups")
    new = edits.in_mapping(text, found[0], name, value)
    again = _vars(new, name, language)
    same = len(new.splitlines()) == len(text.splitlines())
    if not same or len(again) != 1 or plain(again[0]).get(name) != language.value(value):
        raise CannotEditError("is written in a way in which one line cannot be changed alone")
    return new


def _vars(text: str, name: str, language: Language) -> list[Any]:
    found = [value.get("vars") for _, _, value in groups(language.parse(text)) if value.kind == MAPPING]
    return [part for part in found if part is not None and part.kind == MAPPING and part.get(name) is not None]
