"""How nodes differ in what their records say, and which of them is the odd one, where that can be told."""

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

# What can be told of the environment of a launch's processes, of which only keyed digests are kept.


def digest(key: str, value: str) -> str:
    return hmac.new(bytes.fromhex(key), value.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:LENGTH]


def environment(case: LaunchCase, node: str) -> dict[str, str] | None:
    """Digests by name of what the launch was begun with there; None where that was not looked at."""
    record = case.seen["start"].get(node) or case.seen["end"].get(node)
    if record is not None and record["program"] is not None:
        return record["program"]["environment"]
    agents = case.seen["agents"].get(node)
    return agents[0]["environment"] if agents else None


def value_among(case: LaunchCase, node: str, name: str, suspected: Iterable[str]) -> str | None:
    """Which of these values a variable has there; None where it has none of them, or is not set."""
    found = (environment(case, node) or {}).get(name)
    return next((value for value in suspected if found and digest(case.seen["key"], value) == found), None)


class Difference(NamedTuple):
    """odd: the one node that differs from a clear majority, "" where there is none. text: who has what."""

    odd: str
    text: str


def of_programs(case: LaunchCase, what: Callable[[Program], str | None]) -> dict[str, str]:
    """What each node's record says of its program, of those where it is known."""
    found = {}
    for name in case.nodes:
        record = case.seen["start"].get(name) or case.seen["end"].get(name)
        value = what(record["program"]) if record and record["program"] else None
        if value:
            found[name] = value
    return found


def difference(known: Mapping[str, str]) -> Difference | None:
    """None where all agree. With two nodes nobody is the odd one; with more only who stands alone against the rest."""
    counts = Counter(known.values())
    if len(counts) < 2:
        return None
    odd = ""
    if len(known) > 2 and len(counts) == 2:
        odd = next((name for name, value in known.items() if counts[value] == 1), "")
    return Difference(odd, "; ".join(f"{name}: {short(value)}" for name, value in list(known.items())[:8]))


def short(value: str) -> str:
    """Of a path, its last part."""
    return value.rpartition("/")[2][:40]
