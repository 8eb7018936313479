"""How the inventory is to say that a node is quarantined, and what it says."""

from __future__ import annotations

import time
from typing import Any

from muster.members import quarantine
from muster.members.quarantine import OPTION

from .record import operator


def variables(reason: str) -> dict[str, Any]:
    """What to give a node that is quarantined for this reason, from now on."""
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {OPTION: quarantine.entry(reason, operator(), since)}


def said(value: Any) -> tuple[bool, str]:
    """Whether a node is quarantined, and the reason, from the value of the option."""
    return bool(value), str(value["reason"]) if isinstance(value, dict) else ""


__all__ = ["OPTION", "said", "variables"]
