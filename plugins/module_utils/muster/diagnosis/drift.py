"""Differences between the records of nodes, and the node that differs from a majority."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .case import LaunchCase
    from .evidence import Program


LENGTH = 16


# ---------------------------------------------------------------- digests

# Only keyed digests of the environment of a launch's processes are kept.


def digest(key: str, value: str) -> str:
    return hmac.new(bytes.fromhex(key), value.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:LENGTH]


def environment(case: LaunchCase, node: str) -> dict[str, str] | None:
    """Return digests of the launch's environment variables, by name; None if none were recorded."""
    record = case.seen["start"].get(node) or case.seen["end"].get(node)
    if record is not None and record["program"] is not None:
        return record["program"]["environment"]
    agents = case.seen["agents"].get(node)
    return agents[0]["environment"] if agents else None


def value_among(case: LaunchCase, node: str, name: str, suspected: Iterable[str]) -> str | None:
    """Return which of the given values the variable has; None if the variable is not set or has another value."""
    found = (environment(case, node) or {}).get(name)
    return next((value for value in suspected if found and digest(case.seen["key"], value) == found), None)


class Difference(NamedTuple):
    """A difference between nodes. odd: the one node that differs from a clear majority, or "". text: the nodes with
    their values, as a sentence."""

    odd: str
    text: str


def of_programs(case: LaunchCase, what: Callable[[Program], str | None]) -> dict[str, str]:
    """Return a property of the program by node. Nodes where the property is unknown are left out."""
    found = {}
    for name in case.nodes:
        record = case.seen["start"].get(name) or case.seen["end"].get(name)
        value = what(record["program"]) if record and record["program"] else None
        if value:
            found[name] = value
    return found


def difference(known: Mapping[str, str]) -> Difference | None:
    """Return the difference; None if all values are equal. `odd` is set only if there are three nodes or more and
    exactly one node differs."""
    counts = Counter(known.values())
    if len(counts) < 2:
        return None
    odd = ""
    if len(known) > 2 and len(counts) == 2:
        odd = next((name for name, value in known.items() if counts[value] == 1), "")
    return Difference(odd, "; ".join(f"{name}: {short(value)}" for name, value in list(known.items())[:8]))


def short(value: str) -> str:
    """Return the last part of a path, shortened."""
    return value.rpartition("/")[2][:40]
