"""List mounted network file systems and test whether each one responds. A blocked mount does not block the test."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..shared_data.answering import silence
from ..shared_data.mounted import NETWORK, mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECONDS = 4.0
MOST = 24  # an automounter with one mount per home directory can have hundreds


def look(shares: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Test the mounts. shares: requested mounts (shared_data_mounts), which are tested first, because the access
    triggers automounts."""
    if not mounted():
        return {"why": "the mounts cannot be listed", "folders": {}}
    requested = list(dict.fromkeys(str(one.get("path", "")) for one in shares))
    with ThreadPoolExecutor(MOST) as pool:
        first = dict(zip(requested, pool.map(ask, requested), strict=True))
        there = [one for one in mounted() if one.type in NETWORK or one.path in first]
        others = [path for path in dict.fromkeys(one.path for one in there) if path not in first][:MOST]
        found = {**first, **dict(zip(others, pool.map(ask, others), strict=True))}
    # The last mount on a path is the visible one; autofs only waits for the first access.
    top = {one.path: one for one in there if one.type != "autofs"}
    folders = {
        path: {
            "why": why,
            "late": late,
            "source": top[path].source if path in top else "",
            "type": top[path].type if path in top else "",
            "options": top[path].options if path in top else "",
        }
        for path, (why, late) in found.items()
    }
    return {"why": "", "folders": folders}


def ask(path: str) -> tuple[str, bool]:
    return silence(path, SECONDS)
