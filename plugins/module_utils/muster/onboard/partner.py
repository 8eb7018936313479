"""Choose an idle member with which each new node is tested; if possible, a different member for each new node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch.occupied import describe
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.reservation import Holder


NOT_ASKED = "the node did not respond: "


def answered(why: str) -> bool:
    return not why.startswith(NOT_ASKED)


def busy_with(held: Mapping[str, Sequence[Holder]], why: str, *, gpus: int) -> str:
    """Return which process or launch uses a node; "" if the node is idle.

    held: holders of each GPU slot. why: why the GPU processes are unknown.
    """
    holders = [holder for holders in held.values() for holder in holders]
    if holders:
        return f"{describe(holders[0])} uses the node"
    return f"the GPU processes could not be listed: {why}" if gpus and why else ""


def pairs(new: Sequence[str], busy: Mapping[str, str]) -> dict[str, str]:
    """Return a member for each new node; "" if there is none.

    busy: for each member in inventory order, why it is not idle.
    """
    idle = [name for name, why in busy.items() if not why]
    return {name: idle[number % len(idle)] if idle else "" for number, name in enumerate(new)}


def left_out(busy: Mapping[str, str]) -> str:
    """Return why a new node is not tested with a member, as a sentence without a full stop."""
    if not busy:
        return "the node was not tested with a member, because the cluster has no members"
    first, why = next(iter(busy.items()))
    more = f"; and {plural(len(busy) - 1, 'other')}" if len(busy) > 1 else ""
    return f"the node was not tested with a member, because no member is idle ({first}: {why}{more})"
