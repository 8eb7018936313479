"""Read and validate the inventory option launch_users."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from .model import NO_LIMIT, LaunchUser

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .model import Limit

KEYS = ("name", "memlock", "nofile", "tasks")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PATTERNS = {
    "memlock": (r"infinity|\d{1,15}[KMGT]?", 'Use infinity, or a size such as "64G"'),
    "nofile": (r"\d{1,10}(:\d{1,10})?", 'Use a number, or the soft and hard limits such as "65536:1048576"'),
    "tasks": (r"infinity|\d{1,9}|([1-9]\d?|100)%", 'Use a number, a percentage such as "50%", or infinity'),
}


def users_of(entries: Any, limits: Mapping[str, str]) -> tuple[LaunchUser, ...]:
    """Return the valid entries of launch_users. limits: defaults for entries without limits of their own."""
    found = {}
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        given = {"name": entry} if isinstance(entry, str) else entry
        if not any(_entry_faults(given)):
            found[given["name"]] = LaunchUser(**{**limits, **{key: str(value) for key, value in given.items()}})
    return tuple(found.values())


def faults(entries: Any, cluster_user: str) -> Iterator[tuple[str, str]]:
    """Yield each error in launch_users and its fix."""
    names: list[str] = []
    for number, entry in enumerate(entries if isinstance(entries, (list, tuple)) else (), 1):
        given = {"name": entry} if isinstance(entry, str) else entry
        where = f"entry {number} of launch_users"
        for what, fix in _entry_faults(given):
            yield f"{where} {what}", fix
        name = given.get("name") if isinstance(given, dict) else None
        if name in names:
            yield f"{where} is a duplicate of {name}", "List each account once"
        elif name == cluster_user:
            yield (
                f"{where} is {name}, the account of the administrator's launches (cluster_user)",
                "List only the accounts of users",
            )
        elif isinstance(name, str):
            names.append(name)


def limit_faults(limits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each error in the limits and its fix. limits: values by the names in KEYS."""
    for key, (pattern, fix) in _PATTERNS.items():
        value = limits.get(key)
        if value is None:
            continue
        if isinstance(value, (bool, float, dict, list)) or not re.fullmatch(pattern, str(value), re.ASCII):
            yield f"{key} {str(value)[:40]!r}", fix
        elif key == "nofile" and numbers(str(value))[0] > numbers(str(value))[1]:
            yield f"{key} {value!r}, whose soft limit exceeds the hard limit,", fix


def _entry_faults(given: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(given, dict):
        yield "is neither a name nor a mapping", "Use an account name, or {name: anna, memlock: 64G}"
        return
    for key in given:
        if key not in KEYS:
            meant = difflib.get_close_matches(str(key), KEYS, 1)
            hint = f"Use {meant[0]}" if meant else f"Supported keys: {', '.join(KEYS)}"
            yield f"has the unsupported key {str(key)[:40]!r}", hint
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"has the invalid account name {str(name)[:40]!r}", "Use the name of an existing account"
    elif name == "root":
        yield "is root", "Remove root: launches must not run as root"
    for what, fix in limit_faults(given):
        yield f"has the {what}", fix


def size(text: str) -> float:
    """Return a memlock value in bytes."""
    found = _SIZE.fullmatch(text)
    return float(int(found[1]) * _UNITS[found[2]]) if found else NO_LIMIT


def numbers(text: str) -> Limit:
    """Return the soft and hard limit of a nofile value."""
    soft, _, hard = text.partition(":")
    return float(soft), float(hard or soft)
