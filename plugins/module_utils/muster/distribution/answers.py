"""What the program on a node (muster_node/programs/distribution.py) answers: foreign input, read for its shape."""

from __future__ import annotations

import re
from typing import Any, TypedDict

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
MOST_WORD = 500
MOST_BYTES = 2**62
SHAPELESS = "its answer is of no use"


class Stored(TypedDict):
    """missing: digests of what is not there. room: bytes. port_free: whether it can listen on the launch's port."""

    missing: list[str]
    room: int
    port_free: bool
    error: str


def stored(data: Any, known: set[str]) -> Stored:
    """known: the digests that were asked for; others have no place in the answer."""
    missing, room, error = (data.get(name) if isinstance(data, dict) else None for name in ("missing", "room", "error"))
    usable = isinstance(missing, list) and len(missing) <= len(known) and isinstance(error, str)
    if (
        not usable
        or not isinstance(room, int)
        or not 0 <= room < MOST_BYTES
        or not all(isinstance(one, str) and one in known for one in missing or [])
    ):
        return {"missing": [], "room": 0, "port_free": False, "error": SHAPELESS}
    found: list[str] = missing or []
    return {
        "missing": found,
        "room": room,
        "port_free": data.get("port_free") is True,
        "error": (error or "")[:MOST_WORD],
    }


def failure(data: Any) -> str:
    """Return why it did not do what it was asked for, or nothing."""
    error = data.get("error") if isinstance(data, dict) else None
    return error[:MOST_WORD] if isinstance(error, str) else SHAPELESS


def fetched(data: Any) -> str:
    """Return why a node does not have all that it was to fetch, or nothing."""
    why = failure(data)
    if why or data.get("missing") == 0:
        return why
    return SHAPELESS
