"""With which member a new node is tried: one on which nobody works, and each with another one where there are more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch.occupied import describe
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.reservation import Holder


NOT_ASKED = "it could not be asked: "


def answered(why: str) -> bool:
    return not why.startswith(NOT_ASKED)


def busy_with(held: Mapping[str, Sequence[Holder]], why: str, *, gpus: int) -> str:
    """Who works on a node, from who has which of its seats; "" where nobody does. why: who computes is not known."""
    holders = [holder for holders in held.values() for holder in holders]
    if holders:
        return f"{describe(holders[0])} works there"
    return f"who computes on its GPUs is not known: {why}" if gpus and why else ""


def pairs(new: Sequence[str], busy: Mapping[str, str]) -> dict[str, str]:
    """A member for each new node, "" where none is idle. busy: of each member, in the inventory's order, why it is not
    idle."""
    idle = [name for name, why in busy.items() if not why]
    return {name: idle[number % len(idle)] if idle else "" for number, name in enumerate(new)}


def left_out(busy: Mapping[str, str]) -> str:
    """Why there is no pair: a sentence without its end."""
    if not busy:
        return "it was not tried with a member: there is none"
    first, why = next(iter(busy.items()))
    more = f"; and {plural(len(busy) - 1, 'other')}" if len(busy) > 1 else ""
    return f"it was not tried with a member, because none is idle ({first}: {why}{more})"
