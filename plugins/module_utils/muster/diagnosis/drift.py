"""How nodes differ in what their records say, and which of them is the odd one, where that can be told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .case import LaunchCase
    from .evidence import Program


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
