"""Why a node takes part in no launch, as the inventory has it: true alone, or a reason with who gave it and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .seen import text

MOST = 300  # characters of a reason
TRUE = ("true", "yes", "on", "1")


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


def quarantine(value: Any) -> Quarantine | None:
    """The quarantine that cluster_quarantined gives a node; None where it gives it none."""
    if isinstance(value, Mapping):
        said = (text(str(value.get(name) or ""), MOST) for name in ("reason", "since", "by"))
        return Quarantine(*said) if value else None
    return Quarantine() if str(value).strip().lower() in TRUE else None
