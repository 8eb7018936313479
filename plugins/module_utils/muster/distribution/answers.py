"""What the program on a node (muster_node/programs/distribution.py) answers: foreign input, read for its shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
MOST_WORD = 500
MOST_BYTES = 2**62
MOST_PIECES = 20_000
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


class TransferResult(TypedDict):
    """came: the nodes from which anything came, that from which most came first. error: why not all is there."""

    came: list[str]
    error: str


def shared(data: Any, name_of: Mapping[str, str]) -> TransferResult:
    """name_of: the node of each address."""
    came, error = data.get("came") if isinstance(data, dict) else None, failure(data)
    counts = came if isinstance(came, dict) and len(came) <= len(name_of) else {}
    known = {one: count for one, count in counts.items() if one in name_of and isinstance(count, int)}
    names = [name_of[one] for one in sorted(known, key=lambda one: -known[one])]
    return {"came": names, "error": error or ("" if data.get("missing") == 0 else SHAPELESS)}


def offered(data: Any) -> list[str] | str:
    """Return the sha256 of each piece, or why there are none."""
    pieces = data.get("pieces") if isinstance(data, dict) else None
    usable = isinstance(pieces, list) and len(pieces) <= MOST_PIECES and not failure(data)
    if not usable or not all(isinstance(one, str) and DIGEST.match(one) for one in pieces or []):
        return failure(data) or SHAPELESS
    found: list[str] = pieces or []
    return found


class PresentFiles(TypedDict):
    """sizes: of the files that are there and right, by name."""

    sizes: dict[str, int]
    room: int
    port_free: bool
    error: str


def kept(data: Any, names: set[str]) -> PresentFiles:
    """names: of the files that were asked for."""
    sizes, room = (data.get(name) if isinstance(data, dict) else None for name in ("sizes", "room"))
    error = failure(data)
    if error or not isinstance(sizes, dict) or not set(sizes) <= names or not isinstance(room, int):
        return {"sizes": {}, "room": 0, "port_free": False, "error": error or SHAPELESS}
    if not all(isinstance(one, int) and 0 <= one < MOST_BYTES for one in sizes.values()):
        return {"sizes": {}, "room": 0, "port_free": False, "error": SHAPELESS}
    return {"sizes": sizes, "room": room, "port_free": data.get("port_free") is True, "error": ""}
