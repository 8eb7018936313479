"""Why a node takes part in no launch, as the inventory has it: true alone, or a reason with who gave it and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..members.quarantine import PARTS
from .seen import text

MOST = 300  # characters of a reason


@dataclass(frozen=True)
class Quarantine:
    """Each part is empty where the inventory does not say it."""

    reason: str = ""
    since: str = ""
    by: str = ""

    def __str__(self) -> str:
        since = f"since {self.since}" if self.since else ""
        parts = [self.reason or "no reason is given", since, f"by {self.by}" if self.by else ""]
        return ", ".join(part for part in parts if part)


def quarantine(value: bool | Mapping[str, Any]) -> Quarantine | None:
    """The quarantine of a node; None where it is in none. value: as muster/members/quarantine.py reads it."""
    if isinstance(value, Mapping):
        return Quarantine(**{name: text(value.get(name), MOST) for name in PARTS})
    return Quarantine() if value else None
