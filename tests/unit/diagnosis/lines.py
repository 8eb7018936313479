"""Format a cause and its place as in case files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.diagnosis.decide import JudgedCause


def line(one: JudgedCause) -> str:
    place = " - ".join(part for part in (one.place.node, one.place.peer) if part)
    rank = "" if one.place.rank is None else f" rank {one.place.rank}"
    return f"{one.cause.id} @ {place or 'no node'}{rank}"
