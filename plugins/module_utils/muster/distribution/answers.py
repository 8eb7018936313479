"""Validate the answers of the program on a node (muster_node/programs/distribution.py), which are untrusted input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..verdict.reading import Flag, Limit, read_one

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PIECES = 20_000
SHAPELESS = "invalid answer"
Size = Annotated[int, Limit(least=0, below=2**62)]
Digest = Annotated[str, Limit(pattern=re.compile(r"[0-9a-f]{64}"), raw=True)]
FileName = Annotated[str, Limit(most=255, raw=True)]
Digests = Annotated[list[Digest], Limit(most=MOST_PIECES, whole=True)]
WheelSize = Annotated[int, Limit(least=0, below=2**35)]
Sizes = Annotated[dict[FileName, WheelSize], Limit(most=MOST_PIECES, whole=True)]


class TransferFailure(TypedDict):
    """error: why the request failed; "" if it succeeded."""

    error: str


class Room(TransferFailure):
    """room: free bytes. port_free: whether the node can listen on the launch's port."""

    room: Size
    port_free: Flag


class Stored(Room):
    """missing: digests of missing content."""

    missing: Digests


def stored(data: Any, known: set[str]) -> Stored:
    """Validate the answer to a query for missing content.

    known: the requested digests; an answer with any other digest is invalid.
    """
    found: Stored | None = read_one(Stored, data)
    if found and len(found["missing"]) <= len(known) and known.issuperset(found["missing"]):
        return found
    return {"missing": [], "room": 0, "port_free": False, "error": SHAPELESS}


def failure(data: Any) -> str:
    """Return why the request failed; "" if it succeeded."""
    found: TransferFailure | None = read_one(TransferFailure, data)
    return found["error"] if found else SHAPELESS


class TransferResult(TypedDict):
    """came: names of the source nodes, sorted by the number of pieces that they sent. error: why content is missing."""

    came: list[str]
    error: str


def shared(data: Any, name_of: Mapping[str, str]) -> TransferResult:
    """Validate the answer to a transfer request. name_of: node names by address."""
    error = failure(data)
    if error == SHAPELESS:
        return {"came": [], "error": error}
    counts = read_one(dict[str, int], data.get("came")) or {}
    known = {one: count for one, count in counts.items() if one in name_of} if len(counts) <= len(name_of) else {}
    names = [name_of[one] for one in sorted(known, key=lambda one: -known[one])]
    return {"came": names, "error": error or ("" if data.get("missing") == 0 else SHAPELESS)}


def offered(data: Any) -> list[str] | str:
    """Return the SHA-256 digest of each piece, or the error message."""
    pieces: list[str] | None = read_one(Digests, data.get("pieces")) if isinstance(data, dict) else None
    return failure(data) or (SHAPELESS if pieces is None else pieces)


class PresentFiles(Room):
    """sizes: size in bytes of each file whose content on the node is correct, by file name."""

    sizes: Sizes


def kept(data: Any, names: set[str]) -> PresentFiles:
    """Validate the answer about files on a node. names: the requested file names."""
    found: PresentFiles | None = read_one(PresentFiles, data)
    if found and not found["error"] and names.issuperset(found["sizes"]):
        return found
    return {"sizes": {}, "room": 0, "port_free": False, "error": failure(data) or SHAPELESS}
