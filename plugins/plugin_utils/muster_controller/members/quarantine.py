"""How the inventory is to say that a node is quarantined, and what it says."""

from __future__ import annotations

import time
from typing import Any

from muster.members import quarantine
from muster.members.quarantine import OPTION, SINCE
from muster_controller.artifacts.record import operator


def entry(reason: str, *, automatic: bool = False) -> dict[str, Any]:
    """What the inventory says of a node that is quarantined for this reason, from now on."""
    by = f"the health check of {operator()}" if automatic else operator()
    return quarantine.entry(reason, by, time.strftime(SINCE, time.gmtime()), automatic=automatic)


def variables(reason: str) -> dict[str, Any]:
    """The same, as variables of the node."""
    return {OPTION: entry(reason)}


def said(value: Any) -> tuple[bool, str]:
    """Whether a node is quarantined, and the reason, from the value of the option."""
    return bool(value), str(value["reason"]) if isinstance(value, dict) else ""


__all__ = ["OPTION", "entry", "said", "variables"]
