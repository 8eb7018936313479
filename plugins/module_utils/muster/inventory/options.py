"""Read values with the types that roles declare for their options (argument_specs)."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..members import quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Options of several types (raw in their specs), and their readers.
OF_SEVERAL_TYPES: dict[str, Callable[[Any], Any]] = {quarantine.OPTION: quarantine.read}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True)
class Option:
    """An option in a role's argument_specs.

    choices: the allowed values; for a list, the allowed values of each element.
    """

    name: str
    type: str = "str"
    choices: tuple[Any, ...] = field(default=())
    elements: str = "str"


def options_of(argument_specs: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options in a role's argument_specs (first entry point)."""
    declared = next(iter(argument_specs["argument_specs"].values())).get("options", {})
    return {
        name: Option(name, spec.get("type", "str"), tuple(spec.get("choices", ())), spec.get("elements", "str"))
        for name, spec in declared.items()
    }


def read(option: Option, value: Any) -> Any:
    """Return the value as the option's type. Raises ValueError with a description of the problem.

    This is stricter than Ansible, which accepts the number 2.10 as the version "2.1", and False as a mode other than
    "off".
    """
    if option.name in OF_SEVERAL_TYPES:
        return OF_SEVERAL_TYPES[option.name](value)
    if isinstance(value, bool):
        # YAML reads unquoted off, on, yes and no as booleans.
        words = [word for word in option.choices if word in (_TRUE if value else _FALSE)]
        if words:
            raise ValueError(f'is {value!r}: YAML reads unquoted {words[0]} as a boolean; use "{words[0]}"')
    result = _read_list(option, value) if option.type == "list" else _read_one(option.type, value)
    wrong = [one for one in (result if option.type == "list" else [result]) if one not in option.choices]
    if option.choices and wrong:
        one = f"has {_short(wrong[0])}, which is" if option.type == "list" else f"is {_short(value)},"
        near = difflib.get_close_matches(str(wrong[0]), map(str, option.choices), 1) if option.type == "list" else []
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{one} not one of {', '.join(map(str, option.choices))}{meant}")
    return result


def _read_one(kind: str, value: Any) -> Any:
    readers = {"bool": _bool, "int": _int, "float": _float, "dict": _dict, "str": _str, "path": _str}
    return readers[kind](value) if kind in readers else value


def _read_list(option: Option, value: Any) -> list[Any]:
    # Values from the command line (-e x=a,b) are always text.
    is_text = isinstance(value, str) and option.elements in ("str", "path")
    entries = value.split(",") if is_text else value
    if not isinstance(entries, (list, tuple)):
        raise ValueError(f"is {_short(value)}, not a list")
    read_entries = []
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, str) and not entry.strip():
            continue
        try:
            result = _read_one(option.elements, entry)
        except ValueError as error:
            raise ValueError(f"has an invalid {_ordinal(number)} entry: it {error}") from None
        read_entries.append(result.strip() if isinstance(result, str) else result)
    return read_entries


def _bool(value: Any) -> bool:
    word = _short(value).strip("'").lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"is {_short(value)}, not true or false")


def _int(value: Any) -> int:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError(f"is {_short(value)}, not a whole number")


def _float(value: Any) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"is {_short(value)}, not a number")


def _str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("has no value")
    if isinstance(value, (dict, list, tuple)):
        raise ValueError(f"is {_short(value)}, not text")
    raise ValueError(f"is {_short(value)}, not text; enclose it in quotes")


def _dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        # On the command line, -e x='{"a": "b"}' arrives as text if it is quoted twice.
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return parsed
    raise ValueError(f"is {_short(value)}, not a mapping of names to values")


def _short(value: Any) -> str:
    """Return the repr of the value, at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print a number of more than 4300 digits
        text = "a number with thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
