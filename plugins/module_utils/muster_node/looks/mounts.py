"""List mounted network file systems and test whether each one responds. A blocked mount does not block the test."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from ..shared_data.answering import silence
from ..shared_data.mounted import NETWORK, mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..shared_data.mounted import Mounted

SECONDS = 4.0
MOST = 24  # tests at the same time
ALL_SECONDS = 8.0  # until the last test begins; an automounter with one mount per home directory can have hundreds


def look(shares: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Test the mounts. shares: requested mounts (shared_data_mounts), which are tested first, because the access
    triggers automounts. Mounts of users do not count. left_out: the number of mounts that were not tested."""
    before = mounted()
    if not before:
        return {"why": "the mounts cannot be listed", "folders": {}, "left_out": 0}
    deadline = time.monotonic() + ALL_SECONDS
    requested = list(dict.fromkeys(str(one.get("path", "")) for one in shares))
    with ThreadPoolExecutor(MOST) as pool:
        asked = [path for path in requested if not below_users(path, before)]
        first = {path: pool.submit(ask, path, deadline) for path in asked}
        wait(first.values())
        after = mounted()
        there = [one for one in after if not one.by_user and (one.type in NETWORK or one.path in first)]
        others = {one.path for one in there if one.path not in requested and not below_users(one.path, after)}
        tests = {**first, **{path: pool.submit(ask, path, deadline) for path in sorted(others)}}
        found = {path: result for path, test in tests.items() if (result := test.result())}
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
    return {"why": "", "folders": folders, "left_out": len({*requested, *others}) - len(found)}


def below_users(path: str, mounts: Iterable[Mounted]) -> bool:
    """Return whether a mount of a user hides the path, so that root has no access to it."""
    return any(f"{path}/".startswith(f"{one.path}/") for one in mounts if one.by_user)


def ask(path: str, deadline: float) -> tuple[str, bool] | None:
    return silence(path, SECONDS) if time.monotonic() < deadline else None
