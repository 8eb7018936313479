"""What can be told of the environment of a launch's processes, of which only keyed digests are kept."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .case import LaunchCase

LENGTH = 16


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
