"""What a role says about one of its options, and the reading of a value as that option."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True)
class Option:
    """One option of a role, as its argument_specs declare it."""

    name: str
    type: str = "str"
    choices: tuple[Any, ...] = field(default=())


def options_of(argument_specs: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options of the main entry point of a role's argument_specs."""
    declared = argument_specs["argument_specs"]["main"].get("options", {})
    return {
        name: Option(name, spec.get("type", "str"), tuple(spec.get("choices", ()))) for name, spec in declared.items()
    }


def read(option: Option, value: Any) -> Any:
    """Return the value as the option's type, or raise ValueError with what is wrong with it.

    Stricter than Ansible, which would take the number 2.10 for the version "2.1".
    """
    readers = {"bool": _bool, "int": _int, "list": _list, "str": _str, "path": _str}
    if option.type not in readers:
        return value
    result = readers[option.type](value)
    if option.choices and result not in option.choices:
        raise ValueError(f"is {value!r}, not one of {', '.join(map(str, option.choices))}")
    return result


def _bool(value: Any) -> bool:
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"is {value!r}, not true or false")


def _int(value: Any) -> int:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError(f"is {value!r}, not a whole number")


def _str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("has no value")
    raise ValueError(f"is {value!r}, not text; put it in quotes")


def _list(value: Any) -> list[str]:
    # An option given on the command line (-e x=a,b) is always text.
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)):
        raise ValueError(f"is {value!r}, not a list")
    return [_str(entry).strip() for entry in entries if entry != ""]
